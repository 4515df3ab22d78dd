"""Evicting pods for others where kube-scheduler never asks whom to evict. Off by default.

It must not choose victims; `accounting.answers.preemption` does.
"""

from extender.live.evicting.evictor import Evictor
from extender.live.evicting.settings import EvictSettings

__all__ = ["EvictSettings", "Evictor"]
