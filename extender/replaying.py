"""Feeding a journal to a fresh cluster and reporting the first difference.

Why it exists: a journal of a production fault is a test. It must not talk to an API server. Invariant: the same code
that answered then answers now, on the same state, so every difference is a change of behaviour or a hole in the
journal.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from accounting.claims import Claim, Claims, crowded_rows
from accounting.codec import decode_allocation, encode_allocation
from accounting.device_table import BoolArray
from accounting.explain import explain_node
from accounting.holdings import DeviceUse
from accounting.pod import Pod
from accounting.snapshot import Snapshot
from extender.cluster import Cluster
from extender.config import Settings
from extender.hooks import Hooks
from extender.journal import Entry
from extender.kube.reflector import Change, Sink
from extender.live.facts import Facts
from extender.live.sinks import NodeSink, PodSink, QuotaSink
from extender.verbs import Verbs
from extender.wire.extender_v1 import WireError


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay first differs: the journal's line, what happened, and both results."""

    line: int
    what: str
    recorded: str
    replayed: str


@dataclass(slots=True)
class Summary:
    """What was replayed."""

    entries: int = 0
    answers: int = 0
    bookings: int = 0
    difference: Difference | None = None


class _ClaimHooks(Hooks):
    """Claims come from the journal; everything else reads."""

    def __init__(self, cluster: Cluster, claims: Claims) -> None:
        self._cluster = cluster
        self._claims = claims

    @property
    def version(self) -> int:
        return self._claims.version

    def crowded(self, snapshot: Snapshot, pod: Pod) -> BoolArray | None:
        return crowded_rows(self._cluster.cache, snapshot, pod, self._claims)


class Replay:
    """One replay."""

    def __init__(self, settings: Settings) -> None:
        self.summary = Summary()
        self._cluster = Cluster(settings)
        self._claims = Claims()
        self._verbs = Verbs(self._cluster, _ClaimHooks(self._cluster, self._claims))
        facts = Facts()
        self._sinks: dict[str, Sink] = {
            "Node": NodeSink(self._cluster, facts, _ignore, _ignore),
            "Pod": PodSink(self._cluster, facts, _ignore, _ignore),
            "ResourceQuota": QuotaSink(self._cluster, lambda: None),
        }

    def run(self, entries: Iterable[tuple[int, Entry]]) -> Summary:
        """Feed entries until they end or the first difference."""
        for line, entry in entries:
            self.summary.entries += 1
            self.summary.difference = self._feed(line, entry)
            if self.summary.difference is not None:
                break
        return self.summary

    def _feed(self, line: int, entry: Entry) -> Difference | None:
        op, uid = entry["op"], str(entry.get("uid", ""))
        if op == "verb":
            return self._verb(line, entry)
        if op == "assume":
            return self._assume(line, entry)
        if op == "change":
            self._sinks[entry["kind"]].change(Change(entry["change"]), msgspec.Raw(entry["object"].encode()))
        elif op == "replaced":
            self._sinks[entry["kind"]].replaced(set(entry["identities"]))
        elif op == "finish":
            self._cluster.finish(uid)
        elif op == "forget":
            self._cluster.forget(uid)
        elif op == "claim":
            uses = tuple(DeviceUse(*use) for use in entry["uses"])
            self._claims.put(uid, Claim(entry["node"], uses, entry["count"]), 0.0)
        elif op == "unclaim":
            self._claims.drop(uid)
        else:
            return Difference(line, "an entry", str(op), "no such operation is known")
        return None

    def _verb(self, line: int, entry: Entry) -> Difference | None:
        self.summary.answers += 1
        verb, body, recorded = entry["verb"], base64.b64decode(entry["body"]), base64.b64decode(entry["answer"])
        try:
            answer = {"filter": self._verbs.filter, "prioritize": self._verbs.prioritize}[verb](body)
        except WireError as error:
            answer = str(error).encode()
        if answer == recorded:
            return None
        return Difference(line, f"answer of {verb}", recorded.decode(), answer.decode())

    def _assume(self, line: int, entry: Entry) -> Difference | None:
        """Choose the pod's cards again, compare, and book what was booked."""
        self.summary.bookings += 1
        uid, node, text = str(entry["uid"]), str(entry["node"]), str(entry["allocation"])
        pod = self._cluster.pod(uid)
        if pod is None:
            return Difference(line, f"booking of pod {uid}", text, "the pod is not known")
        unbound, cache = replace(pod, node=None, allocation=None), self._cluster.cache
        outcome = explain_node(cache.snapshot(), unbound, node, cache.positions(node))
        if isinstance(outcome, tuple):
            return Difference(line, f"booking of pod {pod.key} on {node}", text, f"{outcome[0].code}")
        chosen = encode_allocation(outcome.allocation, self._cluster.settings.vendor.key)
        if chosen != text:
            return Difference(line, f"booking of pod {pod.key} on {node}", text, chosen)
        allocation = decode_allocation(text, len(pod.containers), "allocation")
        self._cluster.assume(replace(unbound, node=node, allocation=allocation))
        return None


def _ignore(_name: str) -> None:
    """Nobody waits for locks or room in a replay."""
