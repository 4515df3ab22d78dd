"""Writing the journal of a live extender.

It must not decide anything. Invariant: entries stand in the order in which they took effect, so that `replaying` can
feed them one after another.
"""

import base64

import msgspec

from accounting.answers import Claim, Claims
from extender import __version__
from extender.cluster import Cluster
from extender.convert import pack_rows
from extender.journal.journal import Journal


class Recorder:
    """Connects a cluster and its claims to a journal."""

    def __init__(self, journal: Journal, cluster: Cluster, claims: Claims | None) -> None:
        self._journal = journal
        settings = msgspec.to_builtins(cluster.settings)
        journal.write({"op": "start", "version": __version__, "settings": settings})
        cluster.on_booking = self.on_booking
        if claims is not None:
            claims.on_change = self.on_claim

    def on_answer(self, verb: str, body: bytes, answer: bytes) -> None:
        """Record a verb's question and answer. Bodies are what kube-scheduler sent, so not always text."""
        try:
            question = {"body": body.decode()}
        except UnicodeDecodeError:
            question = {"base64": base64.b64encode(body).decode()}
        self._journal.write({"op": "verb", "verb": verb, **question, "answer": answer.decode(errors="replace")})

    def on_booking(self, entry: dict[str, object]) -> None:
        """Record an assumption, how it ended, or what a read told."""
        allocation = entry.get("allocation")
        if isinstance(allocation, tuple):
            entry = entry | {"allocation": pack_rows(allocation)}
        self._journal.write(entry)

    def on_claim(self, uid: str, claim: Claim | None, _now: float) -> None:
        """Record a claim made or ended."""
        if claim is None:
            self._journal.write({"op": "unclaim", "uid": uid})
            return
        entry = {"op": "claim", "uid": uid, "node": claim.node, "uses": claim.uses, "count": claim.count}
        further = {"further_counts": claim.further_counts} if claim.further_counts else {}
        self._journal.write(entry | further)
