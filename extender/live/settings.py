"""The settings of all parts of a live extender.

It must not know what the parts do.
"""

import os
import socket
import uuid
from dataclasses import dataclass, field

from extender.kube.reflector import ReflectorSettings
from extender.live.binding import BindSettings
from extender.live.comparing import CompareSettings
from extender.live.evicting import EvictSettings
from extender.live.holding import HoldSettings
from extender.live.leading import LeaseSettings, OwnPod, Predecessors
from extender.live.tainting import TaintSettings
from extender.live.waking import WakeSettings


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """The settings, with defaults that suit a cluster."""

    leader_elect: bool = True
    follow_lease: bool = False
    """Lead when the kube-scheduler on this host does, by its Lease, instead of electing."""
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    bind: BindSettings = field(default_factory=BindSettings)
    wake: WakeSettings = field(default_factory=WakeSettings)
    evict: EvictSettings = field(default_factory=EvictSettings)
    reflector: ReflectorSettings = field(default_factory=ReflectorSettings)
    compare: CompareSettings = field(default_factory=CompareSettings)
    taints: TaintSettings | None = None
    """None: nothing keeps DRA off cards that pods hold. It needs rights of its own, so it is off by default."""
    holds: HoldSettings = field(default_factory=HoldSettings)
    claims: bool = True
    compare_every_seconds: float = 3600.0
    """Between two comparisons with the API server; with 100,000 pods each one reads 900 MB."""
    failing_seconds: float = 60.0
    """A list or watch that fails for longer makes this replica not ready. It still answers requests."""
    predecessors: Predecessors | None = None
    """The proof that earlier processes of this pod have ended."""
    labelled_pod: OwnPod | None = None
    """This process's pod, which carries a label while it leads; None: no pod does."""
    identity: str = field(default_factory=lambda: f"{_host()}_{uuid.uuid4()}")


def _host() -> str:
    return os.environ.get("POD_NAME") or socket.gethostname()
