"""Comparing the cache with the API server.

It only reports, and must not change the cache.
"""

from extender.live.comparing.comparing import Comparer, CompareSettings, Comparison
from extender.live.comparing.holder_views import HolderView, Machines, Slices, ToldClaims, ToldHolds
from extender.live.comparing.views import NodeView, PodView, QuotaView

__all__ = [
    "CompareSettings",
    "Comparer",
    "Comparison",
    "HolderView",
    "Machines",
    "NodeView",
    "PodView",
    "QuotaView",
    "Slices",
    "ToldClaims",
    "ToldHolds",
]
