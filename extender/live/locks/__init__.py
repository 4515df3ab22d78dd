"""HAMi's node lock, and fair queues by key.

It must not know cards.
"""

from extender.live.locks.fair_queue import Turns
from extender.live.locks.lockowner import OwnerState
from extender.live.locks.nodelock import Contended, Held, NodeLocks

__all__ = ["Contended", "Held", "NodeLocks", "OwnerState", "Turns"]
