"""Feeding a journal to a fresh cluster and reporting the first difference.

Why it exists: the journal of a fault in production is a test. It must not talk to an API server. Invariants: the code
that answered then answers now, on the same state, so every difference is a change of behaviour or a gap in the journal;
each process that wrote to the journal is replayed from an empty cluster, with its own settings.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from accounting.answers import Claim, Claims, crowded_rows
from accounting.holders import VmiKey
from accounting.packing.workload import build_workload
from accounting.pod import Pod
from accounting.state import BoolArray, Snapshot
from accounting.status import Code
from extender.cluster import Cluster
from extender.config import Settings
from extender.convert import pack_rows, unpack_rows
from extender.journal import journal
from extender.kube.reflector import Sink
from extender.live.watching import (
    BudgetSink,
    Facts,
    HoldSink,
    NodeSink,
    PodInformer,
    PodSink,
    QuotaSink,
    VmiSink,
    dra_sinks,
)
from extender.verbs import Hooks, Verbs, placed
from extender.wire.core_v1 import Pod as WirePod
from extender.wire.extender_v1 import BindingArgs, WireError, decode_binding, encode_binding

#: First words of a bind's Error that says that no cards were found.
_REFUSALS = frozenset(map(str, Code))


class _Bound(msgspec.Struct):
    Error: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of a replay: the journal's line, what happened, and both results."""

    line: int
    what: str
    recorded: str
    replayed: str


@dataclass(slots=True)
class Summary:
    """What was replayed."""

    entries: int = 0
    processes: int = 0
    answers: int = 0
    bookings: int = 0
    refusals: int = 0
    """Binds that found no cards."""
    difference: Difference | None = None


class _RecordedHooks(Hooks):
    """Hooks of a replay: claims come from the journal; a question records its pod as on a live cluster."""

    def __init__(self, cluster: Cluster, informer: PodInformer, claims: Claims) -> None:
        self._cluster = cluster
        self._informer = informer
        self._claims = claims

    @property
    def version(self) -> int:
        return self._claims.version

    def filtered(self, pod: Pod, wire: WirePod, names: Sequence[str], feasible: BoolArray) -> None:  # noqa: ARG002 - hook
        self._informer.asked_about(wire)

    def crowded(self, snapshot: Snapshot, pod: Pod) -> BoolArray | None:
        return crowded_rows(self._cluster.cache, snapshot, pod, self._claims)


class _Process:
    """One process of the journal, from its start on."""

    def __init__(self, settings: Settings) -> None:
        self.claims = Claims()
        self.cluster = Cluster(settings, claims=self.claims, deletions_are_told=True)
        self.refusals: dict[tuple[str, str], list[str]] = {}  # pod UID, node -> why binds there found no cards
        informer = PodInformer(self.cluster)
        verbs = Verbs(self.cluster, _RecordedHooks(self.cluster, informer, self.claims))
        self.verbs: dict[str, Callable[[bytes], bytes]] = {
            "filter": verbs.filter,
            "prioritize": verbs.prioritize,
            "preempt": verbs.preempt,
        }
        self.sinks: dict[str, Sink] = {
            "Node": NodeSink(self.cluster, Facts()),
            "Pod": PodSink(self.cluster, informer),
            "ResourceQuota": QuotaSink(self.cluster),
            "PodDisruptionBudget": BudgetSink(self.cluster.residents.budgets),
            "VirtualMachineInstance": VmiSink(self.cluster),
            **dra_sinks(self.cluster),
        }
        if settings.hold_source is not None:
            self.sinks["Hold"] = HoldSink(self.cluster, settings.hold_source)

    def apply(self, entry: journal.Entry) -> None:
        """Apply an entry that has no answer to compare."""
        if isinstance(entry, journal.Changed):
            self.sinks[entry.kind].change(entry.change, msgspec.Raw(entry.object.encode()))
        elif isinstance(entry, journal.Replaced):
            self.sinks[entry.kind].replaced(set(entry.identities))
        elif isinstance(entry, journal.Finish | journal.Forget | journal.Lose):
            self._settle(entry)
        elif isinstance(entry, journal.Claimed):
            claim = Claim(entry.node, entry.uses, entry.count, entry.further_counts)
            self.cluster.registry.claim(entry.uid, claim, 0.0)
        elif isinstance(entry, journal.Unclaim):
            self.cluster.registry.end_claim(entry.uid)
        elif isinstance(entry, journal.Plugin):
            self.cluster.plugins.note(entry.node, entry.vendor, alive=entry.alive)
        elif isinstance(entry, journal.Expect):
            self.cluster.expect(build_workload(entry.mix, entry.plan))
        elif isinstance(entry, journal.RawBudgets):
            self.cluster.set_raw_budgets({(namespace, key): units for namespace, key, units in entry.hard})
        elif isinstance(entry, journal.Holds):
            self.cluster.hold_sets.decide(VmiKey(entry.namespace, entry.vmi), tuple(entry.holds))

    def _settle(self, entry: journal.Finish | journal.Forget | journal.Lose) -> None:
        registry = self.cluster.registry
        if isinstance(entry, journal.Finish):
            registry.finish_binding(entry.uid)
        elif isinstance(entry, journal.Forget):
            registry.forget_binding(entry.uid)
        else:
            registry.lose_binding(entry.uid)

    def answer(self, entry: journal.Verb) -> str | None:
        """Answer again; None for a bind whose outcome depended on the API server or the clock."""
        body, verb = entry.base64 if entry.body is None else entry.body.encode(), self.verbs.get(entry.verb)
        try:
            if verb is None:
                said = self._bound_again(decode_binding(body), entry.answer)
                return None if said is None else encode_binding(said).decode()
            return verb(body).decode(errors="replace")
        except WireError as error:
            return f"Error: {error}"

    def _bound_again(self, args: BindingArgs, answer: str) -> str | None:
        """Return the Error of a bind from what was booked or refused; None if that does not decide it.

        For example, a pod that ended before the answer was written leaves no trace.
        """
        refused = self.refusals.get((args.PodUID, args.Node), [])
        if any(encode_binding(why).decode() == answer for why in refused):
            return msgspec.json.decode(answer, type=_Bound).Error
        pod = self.cluster.pod(args.PodUID)
        said = msgspec.json.decode(answer, type=_Bound).Error
        if pod is None or not pod.concerned:
            return None
        if not said or said.startswith("AlreadyBound:"):
            return self._where(pod, args.Node)
        if said.partition(":")[0] in _REFUSALS:
            return refused[-1] if refused else "no cards were looked for"
        return None

    def _where(self, pod: Pod, node: str) -> str:
        """Return what a bind answers for a pod that is booked."""
        record = self.cluster.cache.pods.get(pod.uid)
        if record is None:
            return "the pod is on no node"
        return "" if record.node == node else f"AlreadyBound: pod {pod.key} is on node {record.node}"

    def refuse(self, entry: journal.Refuse) -> str:
        """Try to find cards again for a pod that got none; returns why it gets none."""
        pod = self.cluster.pod(entry.uid)
        if pod is None:
            return "the pod is not known"
        outcome = placed(self.cluster, pod._replace(node=None, allocation=None), entry.node)
        if isinstance(outcome, str):
            self.refusals.setdefault((entry.uid, entry.node), []).append(outcome)
            return outcome
        return pack_rows(outcome.allocation)

    def book(self, entry: journal.Assume) -> str:
        """Choose a pod's cards again and book them if they are the same; returns them, or why there are none."""
        pod = self.cluster.pod(entry.uid)
        if pod is None:
            return "the pod is not known"
        unbound = pod._replace(node=None, allocation=None)
        outcome = self.cluster.placed(unbound, entry.node)
        if isinstance(outcome, tuple):
            return f"{outcome[0].code}: {outcome[0].message}"
        chosen = pack_rows(outcome.allocation) if pod.asks else ""
        if chosen == entry.allocation:
            allocation = unpack_rows(chosen, pod.containers, "allocation") if pod.asks else None
            self.cluster.registry.assume(unbound._replace(node=entry.node, allocation=allocation))
        return chosen


class Replay:
    """One replay. `settings` apply if the journal's first process did not write its own."""

    def __init__(self, settings: Settings) -> None:
        self.summary = Summary()
        self._process = _Process(settings)

    def run(self, entries: Iterable[tuple[int, journal.Entry]]) -> Summary:
        """Feed entries until the end or the first difference."""
        for line, entry in entries:
            self.summary.entries += 1
            self.summary.difference = self._feed(line, entry)
            if self.summary.difference is not None:
                break
        return self.summary

    def _feed(self, line: int, entry: journal.Entry) -> Difference | None:
        if isinstance(entry, journal.Start):
            self.summary.processes += 1
            self._process = _Process(entry.settings)
        elif isinstance(entry, journal.Verb):
            answer = self._process.answer(entry)
            self.summary.answers += answer is not None
            if answer not in (None, entry.answer):
                return Difference(line, f"answer of {entry.verb}", entry.answer, str(answer))
        elif isinstance(entry, journal.Refuse):
            self.summary.refusals += 1
            why = self._process.refuse(entry)
            if why != entry.why:
                return Difference(line, f"refusal of pod {entry.uid} on {entry.node}", entry.why, why)
        elif isinstance(entry, journal.Assume):
            self.summary.bookings += 1
            cards = self._process.book(entry)
            if cards != entry.allocation:
                return Difference(line, f"booking of pod {entry.uid} on {entry.node}", entry.allocation, cards)
        else:
            self._process.apply(entry)
        return None
