"""What a live cluster adds to the verbs; an embedded one adds nothing.

It must not answer requests. Invariant: with the defaults of this class the verbs only read.
"""

from collections.abc import Sequence

from accounting.pod import Pod
from accounting.state import BoolArray, Snapshot
from extender.verbs.decisions import Decision
from extender.wire.core_v1 import Pod as WirePod


class Hooks:
    """Functions that the verbs call, synchronously."""

    @property
    def version(self) -> int:
        """Changes whenever an answer of the hooks may change."""
        return 0

    def why_not_ready(self) -> str:
        """Return why no verb can be answered now; "" if they can."""
        return ""

    def filtered(self, pod: Pod, wire: WirePod, names: Sequence[str], feasible: BoolArray) -> None:
        """Note that filter judged a pod on these nodes."""

    def decided(self, pod: Pod, decision: Decision) -> None:
        """Note a decision after filter's answer."""

    def crowded(self, snapshot: Snapshot, pod: Pod) -> BoolArray | None:
        """Return a mask over rows, shape (row,), of nodes to rank behind all others; None for none."""

    def scored(self, pod: Pod, best: str | None) -> None:
        """Prioritize found the node where the pod will probably go, if any."""

    def preempted(self, pod: Pod, *, helped: bool) -> None:
        """Preempt was asked about a pod. `helped`: victims were named, so that kube-scheduler evicts them."""
