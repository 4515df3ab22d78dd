"""The nodes that can take a pod, and why the others cannot.

Why it exists: this is the answer to kube-scheduler's filter. It must not know the wire. Invariants: it reads a snapshot
and changes nothing; a pod's own booking never counts against it.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from accounting.answers.rejection import node_codes
from accounting.answers.verdicts import CodeArray, Verdict, Verdicts
from accounting.cards import accepted_vendor, fit_pod
from accounting.demand import Demand
from accounting.holdings import requested_count
from accounting.mig import Searched, place_on_columns
from accounting.pod import Pod
from accounting.quota import UNLIMITED, Budget, QuotaCheck, within
from accounting.state import BoolArray, Int32Array, Rows, Snapshot, View
from accounting.status import CODE_NUMBER, Code

#: The number of demands for which a snapshot remembers the hopeless nodes.
_REMEMBERED = 64
#: Below this share of all rows, fitting only the asked rows costs less than fitting every row.
_WORTH_TAKING = 0.5


def filter_nodes(
    snapshot: Snapshot,
    pod: Pod,
    rows: Rows,
    own: tuple[int, Snapshot] | None = None,
    quota: QuotaCheck = UNLIMITED,
    verdicts: Verdicts | None = None,
    kept: Mapping[int, Snapshot] = MappingProxyType({}),
) -> Verdict:
    """Judge the asked rows of a snapshot; -1 stands for an unknown node.

    `own`: the row where this pod is already booked, and the one-row state of that node without it. `quota`: the verdict
    of the namespace's quotas on the pod. `verdicts`: remembered verdicts on snapshots of the same cache. `kept`: rows
    where room is kept from this pod, and the one-row state of each with that room taken.
    """
    if not pod.asks:
        return _uniform(len(rows), None)
    if pod.invalid:
        return _uniform(len(rows), Code.INVALID_REQUEST)
    if quota.exceeded:
        return _uniform(len(rows), Code.QUOTA_EXCEEDED)
    return filter_demand(snapshot, Demand.of(pod), rows, own, quota.budget, verdicts, kept)


def filter_demand(
    snapshot: Snapshot,
    demand: Demand,
    rows: Rows,
    own: tuple[int, Snapshot] | None = None,
    budget: Budget | None = None,
    verdicts: Verdicts | None = None,
    kept: Mapping[int, Snapshot] = MappingProxyType({}),
) -> Verdict:
    """Judge the asked rows for a pod's demand; see `filter_nodes`."""
    known = rows >= 0
    few = len(rows) < _WORTH_TAKING * snapshot.columns
    if few and (verdicts is None or not verdicts.knows(snapshot, demand)):
        asked = np.maximum(rows, 0)
        verdict = _judge(snapshot.take(asked), demand, snapshot, asked, budget)
    else:
        verdict = _every_row(snapshot, demand, budget, verdicts).of(np.maximum(rows, 0))
    for row, alone in (*kept.items(), *(() if own is None else (own,))):
        here = np.flatnonzero(rows == row)
        if len(here):
            single = _judge(alone, demand, alone, np.arange(alone.columns), budget)
            verdict.put(here, single.of(np.zeros_like(here)))
    return _with_unknown(verdict, ~known)


def feasible_on(view: View, pod: Pod, snapshot: Snapshot, budget: Budget | None = None) -> BoolArray:
    """Return (column,): whether each node can take the pod, by cards, node-level rules and budget."""
    demand = Demand.of(pod)
    feasible = node_open(view, demand, snapshot)
    for part in demand.parts:
        wanted = feasible
        feasible = wanted & fit_pod(view, part, snapshot, choose_cards=False, wanted=wanted).feasible
        own = None if budget is None else budget.of_vendor(part.selection.vendor)
        if own is not None and own.mib_of_shared_cards is not None:
            columns = np.flatnonzero(feasible)
            feasible[columns] = within(view.take(columns), part, snapshot, own.mib_of_shared_cards).feasible
        feasible |= place_on_columns(view, part, snapshot, wanted & ~feasible, own and own.most).feasible
    return feasible


def node_open(view: View, demand: Demand, snapshot: Snapshot) -> BoolArray:
    """Return (column,): whether each node may take a pod with this demand, apart from its cards."""
    is_open = _admits(view)
    for part in demand.parts:
        is_open = is_open & _count_fits(view, part, snapshot)
    return is_open


def _admits(view: View) -> BoolArray:
    """Return (column,): whether each node takes pods at all."""
    admits: BoolArray = view.nodes.registered & (view.requested.node_blocks == 0)
    return admits


def _every_row(snapshot: Snapshot, demand: Demand, budget: Budget | None, verdicts: Verdicts | None) -> Verdict:
    """Judge every row of a snapshot; some verdicts may be remembered."""
    if verdicts is None or budget is not None:
        return _judge(snapshot, demand, snapshot, np.arange(snapshot.columns), budget)
    return verdicts.on_every_row(snapshot, demand, lambda view, rows: _judge(view, demand, snapshot, rows, None))


def _judge(view: View, demand: Demand, snapshot: Snapshot, rows: Rows, budget: Budget | None) -> Verdict:
    """Judge every column of a view; `rows` are their rows in the snapshot.

    If a pod asks for cards of several vendors, the first part that does not fit gives a node's code.
    """
    first, *others = (_judge_part(view, part, snapshot, rows, budget) for part in demand.parts)
    for other in others:
        fits = first.feasible
        codes = np.where(fits, other.codes, first.codes)
        unresolvable = first.unresolvable | other.unresolvable
        first = Verdict(fits & other.feasible, codes, unresolvable, first.searched + other.searched)
    return first


def _judge_part(view: View, demand: Demand, snapshot: Snapshot, rows: Rows, budget: Budget | None) -> Verdict:
    """Judge every column for the cards of one vendor."""
    count_fits = _count_fits(view, demand, snapshot)
    wanted = _admits(view) & count_fits
    fit = fit_pod(view, demand, snapshot, choose_cards=False, wanted=wanted)
    feasible = fit.feasible & wanted
    codes = np.zeros(view.columns, np.uint8)
    unresolvable = np.zeros(view.columns, np.bool_)
    failing = np.flatnonzero(~feasible)
    if len(failing):
        part = view if len(failing) == view.columns else view.take(failing)
        codes[failing] = node_codes(part, fit, demand, snapshot, failing)
        codes[failing] = _node_level(part, codes[failing], count_fits[failing], _card_count(part, demand, snapshot))
        unresolvable[failing] = hopeless(demand, snapshot)[rows[failing]]
    verdict = Verdict(feasible, codes, unresolvable, fit.searched)
    own = None if budget is None else budget.of_vendor(demand.selection.vendor)
    if own is not None and own.mib_of_shared_cards is not None:
        _keep_budget(verdict, view, demand, snapshot, own.mib_of_shared_cards)
    if len(snapshot.layouts) > 1:
        _try_mig(verdict, place_on_columns(view, demand, snapshot, wanted & ~verdict.feasible, own and own.most))
    return verdict


def _try_mig(verdict: Verdict, searched: Searched) -> None:
    """Add the verdict of the search on cards in MIG mode, for nodes where the pod does not fit on the other cards."""
    verdict.feasible[searched.feasible] = True
    verdict.unresolvable[searched.feasible] = False
    refused = searched.concerned & ~verdict.feasible
    by_number = np.isin(verdict.codes, [CODE_NUMBER[Code.NUMA_MISMATCH], CODE_NUMBER[Code.INSUFFICIENT_DEVICES]])
    # A card gives several instances, so memory is missing, not cards.
    verdict.codes[refused & by_number] = CODE_NUMBER[Code.INSUFFICIENT_MEMORY]
    verdict.codes[searched.limited] = CODE_NUMBER[Code.SEARCH_LIMIT]
    verdict.unresolvable[searched.limited] = False
    verdict.codes[searched.over] = CODE_NUMBER[Code.QUOTA_EXCEEDED]
    verdict.unresolvable[searched.over] = True


def _keep_budget(verdict: Verdict, view: View, demand: Demand, snapshot: Snapshot, mib: int) -> None:
    """Refuse the nodes that fit but where no choice of cards stays within the budget."""
    columns = np.flatnonzero(verdict.feasible)
    kept = within(view.take(columns), demand, snapshot, mib)
    refused = columns[~kept.feasible]
    verdict.feasible[refused] = False
    verdict.codes[refused] = CODE_NUMBER[Code.QUOTA_EXCEEDED]
    verdict.unresolvable[refused] = True
    limited = columns[kept.limited]
    verdict.codes[limited] = CODE_NUMBER[Code.SEARCH_LIMIT]
    verdict.unresolvable[limited] = False


def hopeless(demand: Demand, snapshot: Snapshot) -> BoolArray:
    """Return (row,): the nodes that certainly could not take such a pod even with every pod gone."""
    known = snapshot.hopeless.get(demand)
    if known is None:
        if len(snapshot.hopeless) >= _REMEMBERED:
            snapshot.hopeless.clear()
        empty = snapshot.emptied()
        open_nodes = node_open(empty, demand, snapshot)
        fit = fit_pod(empty, demand, snapshot, choose_cards=False, wanted=open_nodes)
        possible = fit.feasible | fit.limited
        searched = place_on_columns(empty, demand, snapshot, open_nodes & ~possible, None)
        known = snapshot.hopeless[demand] = ~((possible | searched.feasible | searched.limited) & open_nodes)
    return known


def _node_level(view: View, codes: CodeArray, count_fits: BoolArray, cards: Int32Array) -> CodeArray:
    """Let the reasons of the whole node override those of its cards; the last one set wins."""
    codes[view.requested.node_blocks > 0] = CODE_NUMBER[Code.ALLOCATION_UNREADABLE]
    codes[~count_fits] = CODE_NUMBER[Code.INSUFFICIENT_NODE_COUNT]
    codes[cards == 0] = CODE_NUMBER[Code.NO_DEVICES]
    codes[~view.nodes.registered] = CODE_NUMBER[Code.NODE_UNKNOWN]
    return codes


def _card_count(view: View, demand: Demand, snapshot: Snapshot) -> Int32Array:
    """Return (column,): the number of registered cards of the demand's vendor."""
    of_vendor = accepted_vendor(view, demand.selection, snapshot)
    if of_vendor is None:
        return view.nodes.card_count
    counts: Int32Array = np.add.reduce(view.nodes.present & of_vendor, axis=0, dtype=np.int32)
    return counts


def _count_fits(view: View, demand: Demand, snapshot: Snapshot) -> BoolArray:
    """Return (column,): whether the kubelet's count suffices. It never shrinks before a pod ends: the peak counts."""
    need = requested_count(demand.containers)
    number = snapshot.vendors.get(demand.selection.vendor, 0)
    allocatable = view.count_allocatable_of(number)
    return (allocatable < 0) | (view.count_of(number) + need <= allocatable)


def _with_unknown(verdict: Verdict, unknown: BoolArray) -> Verdict:
    if unknown.any():
        verdict.feasible[unknown] = False
        verdict.codes[unknown] = CODE_NUMBER[Code.NODE_UNKNOWN]
        verdict.unresolvable[unknown] = True
    return verdict


def _uniform(length: int, code: Code | None) -> Verdict:
    number = 0 if code is None else CODE_NUMBER[code]
    return Verdict(
        np.full(length, code is None),
        np.full(length, number, np.uint8),
        np.full(length, code is not None),
    )
