"""HAMi's node lock, and a fair queue per key.

It must not know cards.
"""

from extender.live.locks.fair_queue import FairQueue
from extender.live.locks.lockowner import OwnerState
from extender.live.locks.nodelock import Contended, Held, NodeLocks

__all__ = ["Contended", "FairQueue", "Held", "NodeLocks", "OwnerState"]
