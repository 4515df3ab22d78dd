"""Which replica may write: the Lease, leader election, and following kube-scheduler's Lease.

It must not know pods.
"""

from extender.live.leading.election import LeaderElector
from extender.live.leading.following import LeaseFollower
from extender.live.leading.label import LeaderLabel, OwnPod
from extender.live.leading.leadership import Leadership, LeaseHolder, SoleLeader
from extender.live.leading.lease import LeaseSettings
from extender.live.leading.predecessors import Predecessors

__all__ = [
    "LeaderElector",
    "LeaderLabel",
    "Leadership",
    "LeaseFollower",
    "LeaseHolder",
    "LeaseSettings",
    "OwnPod",
    "Predecessors",
    "SoleLeader",
]
