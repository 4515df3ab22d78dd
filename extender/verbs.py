"""kube-scheduler's verbs over a cluster, from body to body.

Why it exists: one function per verb, synchronous, so that nothing can change between reading the state and answering.
It must not know HTTP. Invariants: filter and prioritize only read (filter remembers the pod object, which holds
nothing); bind alone books; the same question on the same state gets the same bytes.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from accounting.cache import Cache
from accounting.device_table import BoolArray, Rows
from accounting.explain import explain_node
from accounting.filter import Verdict, filter_nodes
from accounting.pod import Pod
from accounting.score import score_nodes
from accounting.status import CODES
from extender.cluster import Cluster
from extender.convert import convert_node, convert_pod
from extender.texts import WIRE_TEXTS
from extender.wire import core_v1
from extender.wire import extender_v1 as wire

#: Answers and verdicts kept for the same question on the same state.
_REMEMBERED = 64


class Verbs:
    """The verbs of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rejected: dict[str, int] = {}  # code -> nodes refused so far
        self.answered_from_memory = 0
        self._version = cluster.version
        self._answers: OrderedDict[tuple[str, bytes], bytes] = OrderedDict()
        self._feasible: OrderedDict[bytes, BoolArray] = OrderedDict()  # raw pod -> (row,) fits

    def filter(self, body: bytes) -> bytes:
        """Answer filter. Raises `wire.WireError` when there is nothing to judge."""
        return self._remembered("filter", body) or self._keep("filter", body, self._filter(body))

    def prioritize(self, body: bytes) -> bytes:
        """Answer prioritize: the best nodes among those of the request that fit."""
        return self._remembered("prioritize", body) or self._keep("prioritize", body, self._prioritize(body))

    def filter_dryrun(self, body: bytes) -> bytes:
        """Answer filter for nodes that need not exist; nothing is left behind."""
        args = wire.decode_args(body)
        pod = _asked(args, self.cluster)
        cache = self.cluster.cache
        if args.items is not None:
            cache = _with_nodes(cache, args, self.cluster)
        return self._answer(args, _judge(cache, self.cluster, pod, args.names)[1])

    def bind(self, body: bytes) -> bytes:
        """Fit the pod again on the chosen node, book it, and answer; an Error leaves everything as it was."""
        args = wire.decode_binding(body)
        cluster = self.cluster
        pod = cluster.pod(args.PodUID)
        if pod is None or (pod.namespace, pod.name) != (args.PodNamespace, args.PodName):
            return wire.encode_binding(f"pod {args.PodNamespace}/{args.PodName} with UID {args.PodUID} is not known")
        if pod.node is not None:
            same = pod.node == args.Node
            return wire.encode_binding("" if same else f"pod {pod.key} is already bound to node {pod.node}")
        if pod.terminal:
            return wire.encode_binding(f"pod {pod.key} has ended")
        if args.Node not in cluster.cache.nodes:
            return wire.encode_binding(f"node {args.Node} is not known")
        return wire.encode_binding(self._book(pod, args.Node))

    def preempt(self, body: bytes) -> bytes:
        """Echo the offered candidates; choosing victims is not done yet."""
        return wire.echo_victims(body)

    def _book(self, pod: Pod, node: str) -> str:
        """Book a pod on a node; returns why not, or an empty text."""
        cluster = self.cluster
        exceeded = cluster.exceeded(pod)
        if exceeded and pod.asks:
            return f"QuotaExceeded: {exceeded[0]}"
        outcome = explain_node(cluster.cache.snapshot(), pod, node, cluster.cache.positions(node))
        if isinstance(outcome, tuple):
            return f"{outcome[0].code}: {outcome[0].message}"
        cluster.bind(replace(pod, node=node, allocation=outcome.allocation if pod.asks else None))
        return ""

    def _filter(self, body: bytes) -> bytes:
        args = wire.decode_args(body)
        pod = _asked(args, self.cluster)
        rows, verdict = _judge(self.cluster.cache, self.cluster, pod, args.names)
        self._feasible[args.raw_pod] = self._by_row(rows, verdict.feasible)
        if len(self._feasible) > _REMEMBERED:
            self._feasible.popitem(last=False)
        if pod.asks or pod.invalid:
            self.cluster.remember(pod)
        return self._answer(args, verdict)

    def _prioritize(self, body: bytes) -> bytes:
        args = wire.decode_args(body)
        pod = _asked(args, self.cluster)
        if not pod.asks:
            return b"[]"
        snapshot = self.cluster.cache.snapshot()
        known = self._feasible.get(args.raw_pod)
        if known is None:
            rows, verdict = _judge(self.cluster.cache, self.cluster, pod, args.names)
            feasible = verdict.feasible
        else:
            rows = snapshot.rows_of(args.names)
            feasible = (rows >= 0) & known[rows]
        places = np.flatnonzero(feasible)
        scores = score_nodes(snapshot, rows[places], pod.policies.node)
        return wire.encode_priorities((args.names[int(places[place])], score) for place, score in scores)

    def _by_row(self, rows: Rows, feasible: BoolArray) -> BoolArray:
        """Return (row,): which rows were judged to fit."""
        fits = np.zeros(self.cluster.cache.snapshot().columns, np.bool_)
        fits[rows[feasible & (rows >= 0)]] = True
        return fits

    def _answer(self, args: wire.ExtenderArgs, verdict: Verdict) -> bytes:
        names, feasible = args.names, verdict.feasible
        items = args.items
        if feasible.all():
            return wire.encode_filter(names, {}, {}, items, by_name=args.by_name)
        texts = [WIRE_TEXTS[code] for code in verdict.codes.tolist()]
        hopeless = (verdict.unresolvable & ~feasible).tolist()
        resolvable = (~verdict.unresolvable & ~feasible).tolist()
        self._count(verdict)
        passed = list(compress(names, feasible.tolist()))
        if items is not None:
            passing = set(passed)
            items = [item for item, name in zip(items, args.item_names, strict=True) if name in passing]
        failed = dict(zip(compress(names, resolvable), compress(texts, resolvable), strict=True))
        unresolvable = dict(zip(compress(names, hopeless), compress(texts, hopeless), strict=True))
        return wire.encode_filter(passed, failed, unresolvable, items, by_name=args.by_name)

    def _count(self, verdict: Verdict) -> None:
        counts = np.bincount(verdict.codes[~verdict.feasible], minlength=len(CODES))
        for number in np.flatnonzero(counts):
            code = CODES[int(number)].value
            self.rejected[code] = self.rejected.get(code, 0) + int(counts[number])

    def _remembered(self, verb: str, body: bytes) -> bytes | None:
        if self._version != self.cluster.version:
            self._version = self.cluster.version
            self._answers.clear()
            self._feasible.clear()
        answer = self._answers.get((verb, body))
        self.answered_from_memory += answer is not None
        return answer

    def _keep(self, verb: str, body: bytes, answer: bytes) -> bytes:
        self._answers[verb, body] = answer
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return answer


def _asked(args: wire.ExtenderArgs, cluster: Cluster) -> Pod:
    """Return the request's pod, unbound: annotations of an earlier attempt do not count."""
    return replace(convert_pod(args.pod, cluster.settings), node=None, allocation=None)


def _judge(cache: Cache, cluster: Cluster, pod: Pod, names: Sequence[str]) -> tuple[Rows, Verdict]:
    """Return the names' rows and what filter says of them."""
    snapshot = cache.snapshot()
    rows = snapshot.rows_of(names)
    exceeded = pod.asks and bool(cluster.exceeded(pod))
    return rows, filter_nodes(snapshot, pod, rows, cache.own_row(pod.uid), quota_exceeded=exceeded)


def _with_nodes(cache: Cache, args: wire.ExtenderArgs, cluster: Cluster) -> Cache:
    """Return a cache of the request's nodes; what is held on nodes that are known counts."""
    trial = Cache()
    for item in args.items or ():
        try:
            node = convert_node(core_v1.decode_node(item), cluster.settings)
        except ValueError as error:
            message = f"Nodes.items: {error}"
            raise wire.WireError(message) from None
        trial.add_node(node)
        for record in cache.pods_on(node.name):
            trial.add_pod(record)
    return trial
