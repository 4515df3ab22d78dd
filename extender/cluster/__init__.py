"""The known objects of a cluster, and the cache that follows from them.

It must not know HTTP or the API server.
"""

from extender.cluster.cluster import Cluster
from extender.cluster.device_classes import DeviceClasses
from extender.cluster.dra_objects import DraObjects
from extender.cluster.entry import Heard, PodEntry, concerns_cards, unpacked, waits
from extender.cluster.events import Events, Over, Seen
from extender.cluster.hold_sets import HoldSets
from extender.cluster.known_pods import KeptPod
from extender.cluster.learning import Learner
from extender.cluster.loading import (
    check_requests,
    checked_pod,
    collect,
    example_cluster,
    garbage_collector_paused,
    load_objects,
)
from extender.cluster.objects import Objects
from extender.cluster.podfacts import PodFacts, is_older, pod_facts
from extender.cluster.registry import PodRegistry
from extender.cluster.resource_claims import ResourceClaims
from extender.cluster.usage import UsageLedger

__all__ = [
    "Cluster",
    "DeviceClasses",
    "DraObjects",
    "Events",
    "Heard",
    "HoldSets",
    "KeptPod",
    "Learner",
    "Objects",
    "Over",
    "PodEntry",
    "PodFacts",
    "PodRegistry",
    "ResourceClaims",
    "Seen",
    "UsageLedger",
    "check_requests",
    "checked_pod",
    "collect",
    "concerns_cards",
    "example_cluster",
    "garbage_collector_paused",
    "is_older",
    "load_objects",
    "pod_facts",
    "unpacked",
    "waits",
]
