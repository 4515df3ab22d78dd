"""From watched objects to the cluster, and what is reported of over-commitment and handshakes.

It must not do I/O beyond writing events and handshakes.
"""

from extender.live.watching.budget_sink import BudgetSink
from extender.live.watching.claim_sinks import ResourceClaimSink, ResourceSliceSink
from extender.live.watching.class_sink import DeviceClassSink
from extender.live.watching.dra import DRA_RESOURCES, dra_reflectors, dra_sinks
from extender.live.watching.facts import Facts, NodeFacts, node_facts
from extender.live.watching.fresh_claims import FreshClaims
from extender.live.watching.handshakes import HandshakeKeeper
from extender.live.watching.hold_sink import HoldSink, hold_reflectors, hold_resource
from extender.live.watching.informer import PodInformer
from extender.live.watching.overcommit import OvercommitReporter
from extender.live.watching.raw_overcommit import RawOvercommitReporter
from extender.live.watching.sinks import NodeSink, PodSink, QuotaSink
from extender.live.watching.vmi_sink import VMIS, VmiSink, vmi_reflectors

__all__ = [
    "DRA_RESOURCES",
    "VMIS",
    "BudgetSink",
    "DeviceClassSink",
    "Facts",
    "FreshClaims",
    "HandshakeKeeper",
    "HoldSink",
    "NodeFacts",
    "NodeSink",
    "OvercommitReporter",
    "PodInformer",
    "PodSink",
    "QuotaSink",
    "RawOvercommitReporter",
    "ResourceClaimSink",
    "ResourceSliceSink",
    "VmiSink",
    "dra_reflectors",
    "dra_sinks",
    "hold_reflectors",
    "hold_resource",
    "node_facts",
    "vmi_reflectors",
]
