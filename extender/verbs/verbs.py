"""kube-scheduler's verbs over a cluster, from body to body.

Why it exists: each verb is one synchronous function, so that nothing can change between reading the state and
answering. It must not know HTTP. Invariants: filter and prioritize only read (filter remembers the pod object, which
holds nothing); only bind books; the same question on the same state gets the same bytes.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from accounting.answers import CodeArray, Verdict, Verdicts, filter_nodes, score_raw, with_raw
from accounting.cards import score_nodes
from accounting.pod import Pod
from accounting.state import BoolArray, Rows
from accounting.state.cache import Cache
from extender.cluster import Cluster
from extender.convert import convert_node, convert_pod, misnamed
from extender.verbs.decisions import Decision, Decisions
from extender.verbs.feasible import Encoded, Feasible
from extender.verbs.hooks import Hooks
from extender.verbs.preempting import victims
from extender.verbs.texts import WIRE_TEXTS, wire_text
from extender.wire import core_v1
from extender.wire import extender_v1 as wire
from extender.wire.preemption_v1 import decode_preemption, encode_victims
from extender.wire.unreadable import why_unreadable

#: The number of answers and verdicts kept for the same question on the same state.
_REMEMBERED = 64
#: The number of pods whose names are kept until prioritize asks. kube-scheduler asks about one pod at a time. Keeping
#: 10,000 names per pod for longer would cost more than it saves: later allocations then miss the CPU cache.
_REMEMBERED_FEASIBLE = 4
_TEXTS = np.array(WIRE_TEXTS, object)
#: Longer bodies, such as 400 whole Node objects, are not kept: 64 of them would fill the memory.
_LONGEST_REMEMBERED_BYTES = 2**20


class _Question(NamedTuple):
    """The key of a kept answer: the whole question, as its body, and the state."""

    verb: str
    body: bytes


class _Answer(NamedTuple):
    """An answer, and the pod of filter's question."""

    body: bytes
    pod: Pod | None = None


class Verbs:
    """The verbs of one cluster."""

    def __init__(
        self, cluster: Cluster, hooks: Hooks | None = None, on_answer: Callable[[str, bytes, bytes], None] | None = None
    ) -> None:
        self.cluster = cluster
        self._on_answer = on_answer
        self._hooks = hooks or Hooks()
        self.rejected: dict[str, int] = {}  # code -> nodes refused so far
        self.preemptions = dict.fromkeys(("victims", "none", "echoed"), 0)
        """Preempt calls by outcome: victims were named, no eviction helps, or the pod asks for no card."""
        self.victims_offered = self.victims_named = 0
        self.searches = 0
        """Number of filter calls in which some node needed the exact search."""
        self.searched_nodes = 0
        self.answered_from_memory = 0
        self.decisions = Decisions()
        self._version: object = None
        self._answers: OrderedDict[_Question, _Answer] = OrderedDict()
        self._verdicts = Verdicts()
        self._feasible: OrderedDict[bytes, Feasible] = OrderedDict()  # by the encoded pod

    def filter(self, body: bytes) -> bytes:
        """Answer filter. Raises `wire.WireError` if the body has nothing to judge."""
        answer = self._remembered("filter", body)
        if answer is None:
            return self._keep("filter", body, self._filter(body))
        if answer.pod is not None:
            # It may have been deleted since; the question shows that it exists again.
            self.cluster.remember(answer.pod)
            self.decisions.repeated(answer.pod.uid)
        return self._told("filter", body, answer.body)

    def prioritize(self, body: bytes) -> bytes:
        """Answer prioritize: the best nodes of the request that fit."""
        answer = self._remembered("prioritize", body)
        if answer is None:
            return self._keep("prioritize", body, _Answer(self._prioritize(body)))
        return self._told("prioritize", body, answer.body)

    def check_ready(self) -> None:
        """Raise `wire.NotReadyError` when nothing can be answered now."""
        why_not = self._hooks.why_not_ready()
        if why_not:
            raise wire.NotReadyError(why_not)

    def filter_dryrun(self, body: bytes) -> bytes:
        """Answer filter for nodes that may not exist; nothing is left behind."""
        self.check_ready()
        args = wire.decode_args(body)
        pod = _asked(args, self.cluster)
        cache = self.cluster.cache
        if args.items is not None:
            cache = _with_nodes(cache, args, self.cluster)
        return _encoded(args, _judge(cache, self.cluster, pod, args.names)[1]).body

    def bind(self, body: bytes) -> bytes:
        """Fit the pod again on the chosen node, book it, and answer; with an Error nothing has changed."""
        args = wire.decode_binding(body)
        cluster = self.cluster
        pod = cluster.pod(args.PodUID)
        if pod is None or (pod.namespace, pod.name) != (args.PodNamespace, args.PodName):
            return wire.encode_binding(f"pod {args.PodNamespace}/{args.PodName} with UID {args.PodUID} is not known")
        if pod.node is not None:
            same = pod.node == args.Node
            return wire.encode_binding("" if same else f"pod {pod.key} is already bound to node {pod.node}")
        if pod.terminal or pod.deleting:
            return wire.encode_binding(f"pod {pod.key} {'has ended' if pod.terminal else 'is being deleted'}")
        if pod.concerned and args.Node not in cluster.cache.nodes:
            return wire.encode_binding(f"node {args.Node} is not known")
        started = time.perf_counter()
        why_not = self._book(pod, args.Node)
        self.decisions.bound(pod.uid, args.Node, why_not, time.perf_counter() - started)
        return wire.encode_binding(why_not)

    def preempt(self, body: bytes) -> bytes:
        """Choose victims on the offered nodes. Raises `wire.WireError` if the body has nothing to judge."""
        self.check_ready()
        args = decode_preemption(body)
        pod = convert_pod(args.pod, self.cluster.settings)._replace(node=None, allocation=None)
        found = victims(self.cluster, args, pod)
        outcome = "echoed" if not pod.asks else "victims" if found else "none"
        self.preemptions[outcome] += 1
        self._hooks.preempted(pod, helped=bool(found))
        self.victims_offered += sum(len(each.raw or ()) for each in args.candidates.values()) if pod.asks else 0
        self.victims_named += sum(len(each.pods) for each in found.values()) if pod.asks else 0
        return self._told("preempt", body, encode_victims(found))

    def _book(self, pod: Pod, node: str) -> str:
        """Book a pod on a node; returns why not, "" on success."""
        cluster = self.cluster
        outcome = cluster.placed(pod, node)
        if isinstance(outcome, tuple):
            return wire_text(outcome[0].code)
        cluster.bind(pod._replace(node=node, allocation=outcome.allocation if pod.asks else None))
        return ""

    def _filter(self, body: bytes) -> _Answer:
        started = time.perf_counter()
        args = wire.decode_args(body)
        pod = _asked(args, self.cluster)
        is_legal = not misnamed(args.pod.metadata)
        if pod.name and is_legal:
            self.cluster.remember(pod)
        rows, verdict = _judge(self.cluster.cache, self.cluster, pod, args.names, self._verdicts)
        if pod.concerned:
            decision = self.decisions.filtered(pod, args.names, verdict, time.perf_counter() - started)
            self._count(decision, verdict)
            self._hooks.decided(pod, decision)
        if pod.concerned and is_legal:
            self._hooks.filtered(pod, args.pod, args.names, verdict.feasible)
        encoded = _encoded(args, verdict)
        if args.items is None:
            self._feasible[args.raw_pod] = Feasible.of(self.cluster, pod, encoded, rows[verdict.feasible])
            if len(self._feasible) > _REMEMBERED_FEASIBLE:
                self._feasible.popitem(last=False)
        return _Answer(encoded.body, pod if pod.name and is_legal else None)

    def _prioritize(self, body: bytes) -> bytes:
        raw = wire.raw_pod_and_names(body)
        feasible = None if raw is None else self._feasible.get(raw[0])
        if raw is not None and feasible is not None and feasible.raw_names == raw[1]:
            # kube-scheduler asks for exactly the names that filter returned, in the same order.
            standing = feasible.now(self.cluster, self._verdicts)
            if standing is not None:
                return self._scored(feasible.pod, *standing)
        args = wire.decode_args(body)
        pod = _asked(args, self.cluster)
        rows, verdict = _judge(self.cluster.cache, self.cluster, pod, args.names, self._verdicts)
        names = list(compress(args.names, verdict.feasible.tolist()))
        return self._scored(pod, names, rows[verdict.feasible])

    def _scored(self, pod: Pod, names: Sequence[str], rows: Rows) -> bytes:
        """Answer prioritize for nodes that fit."""
        started = time.perf_counter()
        if pod.raw and not pod.asks:
            # Whole devices go where they leave the least room, whatever the policy for shares.
            named = score_raw(self.cluster.raw, pod, [name for name in names if name in self.cluster.cache.nodes])
            self.decisions.scored(pod.uid, named, time.perf_counter() - started)
            return wire.encode_priorities(named)
        if not pod.asks and not pod.policies.node.looks_ahead:
            return b"[]"
        snapshot = self.cluster.cache.snapshot()
        crowded = self._hooks.crowded(snapshot, pod) if pod.asks else None
        values = self.cluster.packing.values(snapshot, pod, rows)
        scores = score_nodes(snapshot, rows, pod.policies.node, crowded, values)
        named = [(names[place], score) for place, score in scores]
        if pod.asks:
            self._hooks.scored(pod, named[0][0] if named else None)
            self.decisions.scored(pod.uid, named, time.perf_counter() - started)
        return wire.encode_priorities(named)

    def _count(self, decision: Decision, verdict: Verdict) -> None:
        self.searches += verdict.searched > 0
        self.searched_nodes += verdict.searched
        for refused in decision.refused:
            self.rejected[refused.code] = self.rejected.get(refused.code, 0) + refused.count

    def _remembered(self, verb: str, body: bytes) -> _Answer | None:
        self.check_ready()
        version = self.cluster.version, self._hooks.version
        if self._version != version:
            self._version = version
            self._answers.clear()
        answer = self._answers.get(_Question(verb, body))
        self.answered_from_memory += answer is not None
        return answer

    def _keep(self, verb: str, body: bytes, answer: _Answer) -> bytes:
        if len(body) <= _LONGEST_REMEMBERED_BYTES:
            self._answers[_Question(verb, body)] = answer
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return self._told(verb, body, answer.body)

    def _told(self, verb: str, body: bytes, answer: bytes) -> bytes:
        """Record an answer in the journal."""
        if self._on_answer is not None:
            self._on_answer(verb, body, answer)
        return answer


def _asked(args: wire.ExtenderArgs, cluster: Cluster) -> Pod:
    """Return the request's pod as unbound: annotations of an earlier attempt do not count."""
    return convert_pod(args.pod, cluster.settings)._replace(node=None, allocation=None)


def _encoded(args: wire.ExtenderArgs, verdict: Verdict) -> Encoded:
    """Return filter's answer: every node of the request is in exactly one of its three parts."""
    names, feasible = args.names, verdict.feasible
    feasible_names = names if feasible.all() else list(compress(names, feasible.tolist()))
    items = args.items
    if items is not None:
        passing = set(feasible_names)
        items = [item for item, name in zip(items, args.item_names, strict=True) if name in passing]
    raw_names = wire.encode_names(feasible_names) if args.by_name else b"null"
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    if feasible_names is not names:
        failed = _refused(names, verdict.codes, ~feasible & ~verdict.unresolvable)
        unresolvable = _refused(names, verdict.codes, ~feasible & verdict.unresolvable)
    return Encoded(wire.encode_filter(raw_names, failed, unresolvable, items), raw_names, feasible_names)


def _refused(names: Sequence[str], codes: CodeArray, which: BoolArray) -> dict[str, str]:
    """Return the texts of the chosen nodes by name."""
    return dict(zip(compress(names, which.tolist()), _TEXTS[codes[which]].tolist(), strict=True))


def _repeated(rows: Rows) -> bool:
    """Return whether some node may be named twice; several unknown names count as such."""
    return bool(np.bincount(rows + 1).max(initial=0) > 1)


def _judge(
    cache: Cache, cluster: Cluster, pod: Pod, names: list[str], verdicts: Verdicts | None = None
) -> tuple[Rows, Verdict]:
    """Return the names' rows and filter's verdict on them; repeated names are removed from the list."""
    snapshot = cache.snapshot()
    rows = snapshot.rows_of(names)
    if _repeated(rows):
        names[:] = wire.unique(names)
        rows = snapshot.rows_of(names)
    if cache is cluster.cache:
        return rows, cluster.filter(pod, rows, verdicts)
    # The rows of a trial with other nodes are not those of the cluster.
    verdict = filter_nodes(snapshot, pod, rows, cache.own_row(pod.uid), cluster.quota_check(pod), verdicts)
    return rows, with_raw(verdict, cluster.raw, pod, snapshot, rows)


def _with_nodes(cache: Cache, args: wire.ExtenderArgs, cluster: Cluster) -> Cache:
    """Return a cache of the request's nodes as the request shows them; holdings on known nodes count."""
    alone = Cache(cache.vendors)
    nodes = {name: cache.nodes[name] for name in args.names if name in cache.nodes}
    for name, item in zip(args.item_names, args.items or (), strict=True):
        try:
            nodes[name] = convert_node(core_v1.decode_node(item), cluster.settings)
        except (ValueError, RecursionError) as error:
            message = f"Nodes.items[{name}]: {why_unreadable(error)}"
            raise wire.WireError(message) from None
    for name, node in nodes.items():
        alone.add_node(node)
        for record in cache.pods_on(name):
            alone.add_pod(record)
        cache.claimed.copy_to(alone.claimed, name)
    return alone
