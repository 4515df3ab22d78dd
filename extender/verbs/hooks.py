"""What a live cluster adds to the verbs; an embedded one adds nothing.

It must not answer requests. Invariant: with the defaults of this class the verbs only read.
"""

from collections.abc import Sequence

from accounting.pod import Pod
from accounting.state import BoolArray, Snapshot
from extender.verbs.decisions import Decision
from extender.wire.core_v1 import Pod as WirePod


class Hooks:
    """Called by the verbs, synchronously."""

    @property
    def version(self) -> int:
        """Changes whenever what the hooks answer may change."""
        return 0

    def why_not_ready(self) -> str:
        """Return why no verb can be answered now; empty when they can."""
        return ""

    def filtered(self, pod: Pod, wire: WirePod, names: Sequence[str], feasible: BoolArray) -> None:
        """Filter judged a pod on these nodes."""

    def decided(self, pod: Pod, decision: Decision) -> None:
        """Filter's answer was noted."""

    def crowded(self, snapshot: Snapshot, pod: Pod) -> BoolArray | None:
        """Return (row,): nodes that go behind all others in the order; None for none."""

    def scored(self, pod: Pod, best: str | None) -> None:
        """Prioritize found the node where the pod will probably go, if any."""

    def preempted(self, pod: Pod, *, helped: bool) -> None:
        """Preempt was asked about a pod. `helped`: victims were named, so that kube-scheduler evicts them."""
