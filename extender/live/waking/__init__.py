"""Waking refused pods that would fit now.

It must not book anything.
"""

from extender.live.waking.waker import Waker, WakeSettings

__all__ = ["WakeSettings", "Waker"]
