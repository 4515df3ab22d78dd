"""Writing the journal of a live extender.

It must not decide anything. Invariant: entries stand in the order in which they took effect, so that `replaying` can
feed them one after another.
"""

import base64
from collections.abc import Callable

from accounting.claims import Claim, Claims
from accounting.codec import encode_allocation
from extender.cluster import Cluster
from extender.journal import Journal

Clock = Callable[[], float]


class Recorder:
    """Connects a cluster and its claims to a journal."""

    def __init__(self, journal: Journal, cluster: Cluster, claims: Claims | None) -> None:
        self._journal = journal
        self._vendor_key = cluster.settings.vendor.key
        cluster.on_booking = self.on_booking
        if claims is not None:
            claims.on_change = self.on_claim

    def on_answer(self, verb: str, body: bytes, answer: bytes) -> None:
        """Record a verb's question and answer. Bodies are what kube-scheduler sent, so not always text."""
        self._journal.write(
            {
                "op": "verb",
                "verb": verb,
                "body": base64.b64encode(body).decode(),
                "answer": base64.b64encode(answer).decode(),
            }
        )

    def on_booking(self, entry: dict[str, object]) -> None:
        """Record an assumption, or how it ended."""
        allocation = entry.get("allocation")
        if isinstance(allocation, tuple):
            entry = entry | {"allocation": encode_allocation(allocation, self._vendor_key)}
        self._journal.write(entry)

    def on_claim(self, uid: str, claim: Claim | None, _now: float) -> None:
        """Record a claim made or ended."""
        if claim is None:
            self._journal.write({"op": "unclaim", "uid": uid})
            return
        uses = [list(use) for use in claim.uses]
        self._journal.write({"op": "claim", "uid": uid, "node": claim.node, "uses": uses, "count": claim.count})
