"""Comparing the cache with the API server.

It only reports, and must not change the cache.
"""

from extender.live.comparing.comparing import Comparer, CompareSettings, Comparison
from extender.live.comparing.views import NodeView, PodView, QuotaView

__all__ = ["CompareSettings", "Comparer", "Comparison", "NodeView", "PodView", "QuotaView"]
