"""The objects that are known, and the cache that follows from them.

It must not know HTTP or the API server.
"""

from extender.cluster.cluster import Cluster, Objects
from extender.cluster.events import Events, Seen
from extender.cluster.learning import Learner
from extender.cluster.loading import (
    check_requests,
    checked_pod,
    collect,
    example_cluster,
    garbage_collector_paused,
    load_objects,
)
from extender.cluster.podstore import concerns_cards, unpacked

__all__ = [
    "Cluster",
    "Events",
    "Learner",
    "Objects",
    "Seen",
    "check_requests",
    "checked_pod",
    "collect",
    "concerns_cards",
    "example_cluster",
    "garbage_collector_paused",
    "load_objects",
    "unpacked",
]
