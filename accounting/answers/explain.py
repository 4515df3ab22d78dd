"""Why a pod does not fit a node, with the numbers.

Why it exists: the wire carries one short code per node; a person with a Pending pod needs to know which cards, how
much is free and how much is wanted. It must not decide whether the pod fits. Invariant: the first reason has the code
that filter gives for the node.
"""

from collections.abc import Mapping

import numpy as np

from accounting.answers.allocate import Placement, allocate, allocate_demand
from accounting.answers.filter import filter_demand
from accounting.answers.rejection import ABSENT, CHECKS, FITS, card_ranks
from accounting.cards import STEPS, Assignment, fit_pod, wanted_memory
from accounting.demand import Demand
from accounting.errors import InvariantViolation
from accounting.holdings import Total, pod_total, requested_total
from accounting.phases import Phases
from accounting.pod import Container, DeviceRequest, Pod
from accounting.quota import UNLIMITED, Budget, QuotaCheck, limit_text
from accounting.state import Snapshot, View
from accounting.status import CODES, Code, Reason


def explain_node(
    snapshot: Snapshot,
    pod: Pod,
    node: str,
    positions: Mapping[str, int],
    blockers: tuple[str, ...] = (),
    quota: QuotaCheck = UNLIMITED,
    register: str = "",
) -> Placement | tuple[Reason, ...]:
    """Return the pod's placement on a node, or the reasons against it, the deciding one first.

    `positions`: device position of each card UUID on the node. `blockers`: keys of the pods on the node whose
    allocation cannot be read, and claims whose devices are no known cards. `quota`: what the quotas of the pod's
    namespace say of it. `register`: why the node's register cannot be read, if it cannot.
    """
    if pod.invalid:
        return tuple(Reason(Code.INVALID_REQUEST, str(invalid)) for invalid in pod.invalid)
    row = snapshot.rows.get(node, -1)
    if not pod.asks:
        return Placement(tuple(() for _ in pod.containers), ())
    if quota.exceeded:
        return tuple(Reason(Code.QUOTA_EXCEEDED, str(each)) for each in quota.exceeded)
    uuids = {position: uuid for uuid, position in positions.items()}
    placement = allocate(snapshot, pod, row, uuids, quota.budget) if row >= 0 else None
    if placement is not None:
        return placement
    view = snapshot.take(np.array([max(row, 0)]))
    for part in Demand.of(pod).parts:
        verdict = filter_demand(snapshot, part, np.array([row]), budget=quota.budget)
        if not verdict.feasible[0]:
            code = CODES[int(verdict.codes[0])]
            budget = None if quota.budget is None else quota.budget.of_vendor(part.selection.vendor)
            if budget is not None and code in (Code.QUOTA_EXCEEDED, Code.SEARCH_LIMIT):
                added = _added_without_budget(view, part, snapshot, uuids)
                if added is not None:
                    return _budget_reasons(code, budget, added)
            node_reason = _node_reason(code, view, part, snapshot, blockers, register)
            if node_reason is not None:
                return (node_reason,)
            return _card_reasons(code, view, pod, part, snapshot, uuids)
    raise InvariantViolation(f"pod {pod.key} has no place on {node}, and every part of it has one")


def _added_without_budget(view: View, demand: Demand, snapshot: Snapshot, uuids: Mapping[int, str]) -> Total | None:
    """Return what the pod would add with the cards that it would get if no quota limited it; None if it got none."""
    placement = allocate_demand(view, demand, snapshot, dict(uuids))
    return None if placement is None else pod_total(demand.containers, placement.allocation)[0]


def _budget_reasons(code: Code, budget: Budget, added: Total) -> tuple[Reason, ...]:
    """Say of each limit that these cards pass what the pod would add, and that no other choice adds little enough."""
    search = "none was found" if code is Code.SEARCH_LIMIT else "there are none"
    lefts = [(budget.memory, added.memory, " MiB"), (budget.cores, added.cores, " cores")]
    named = [(left, amount, unit) for left, amount, unit in lefts if left is not None]
    passed = [each for each in named if each[1] > max(each[0].most, 0)] or named
    return tuple(
        Reason(
            code,
            f"{limit_text(left.limit, left.used)}, the pod adds {amount}{unit} with the cards that it would get here; "
            f"of cards with which it adds at most {max(left.most, 0)} {search}",
        )
        for left, amount, unit in passed
    )


def _node_reason(
    code: Code, view: View, demand: Demand, snapshot: Snapshot, blockers: tuple[str, ...], register: str
) -> Reason | None:
    if code is Code.NODE_UNKNOWN:
        return Reason(code, "no such node")
    if code is Code.NO_DEVICES and register:
        return Reason(code, f"the node's register of cards cannot be read: {register}")
    if code is Code.NO_DEVICES:
        of_vendor = "" if len(snapshot.vendors) == 1 else f" of {demand.selection.vendor}"
        return Reason(code, f"the node registers no cards{of_vendor}")
    if code is Code.ALLOCATION_UNREADABLE:
        return Reason(code, f"cards of these holders cannot be told: {', '.join(blockers)}")
    if code is Code.INSUFFICIENT_NODE_COUNT:
        number = snapshot.vendors.get(demand.selection.vendor, 0)
        allowed, taken = int(view.count_allocatable_of(number)[0]), int(view.count_of(number)[0])
        need = requested_total(demand.containers)[0].count
        gone = "; its device plugin is gone" if allowed == 0 else ""
        return Reason(
            code, f"wants a count of {need} at its peak; the node allows {allowed}, its pods take {taken}{gone}"
        )
    return None


def _card_reasons(
    code: Code, view: View, pod: Pod, demand: Demand, snapshot: Snapshot, uuids: Mapping[int, str]
) -> tuple[Reason, ...]:
    """Return the reasons of the cards. `demand`: what the pod asks of one vendor."""
    fit = fit_pod(view, demand, snapshot, choose_cards=False)
    container = pod.containers[int(fit.failed_at[0])]
    request = demand.containers[int(fit.failed_at[0])].request
    if request is None:
        return ()
    assignment = fit.assignments[int(fit.failed_at[0])]
    ranks = card_ranks(view, assignment, request, demand, snapshot)[:, 0]
    reasons: dict[Code, list[int]] = {}
    for rank in sorted({int(rank) for rank in ranks} - {ABSENT, FITS}, reverse=True):
        cards = np.flatnonzero(ranks == rank)
        reasons.setdefault(CHECKS[rank], []).extend(int(card) for card in cards)
    doubted = Phases.of(demand).others_before(int(fit.failed_at[0]))
    fitting = int(np.count_nonzero(ranks == FITS))
    present = int(np.count_nonzero(ranks != ABSENT))
    prefix = f"{_who(container, request)}{_so_far(fitting, request)}"
    if doubted and code is not Code.SEARCH_LIMIT:
        prefix += ", and no other cards for the containers before it would help"
    found = [
        Reason(
            each, f"{prefix}; {_numbers(each, cards, view, assignment, request)}", tuple(uuids[card] for card in cards)
        )
        for each, cards in reasons.items()
    ]
    if code is Code.INSUFFICIENT_MEMORY and code not in reasons:
        text = "the cards in mig mode have no places for all instances of the pod at once"
        found.insert(0, Reason(code, f"{_who(container, request)}; {text}"))
    if code is Code.INSUFFICIENT_DEVICES:
        found.insert(0, Reason(code, f"{_who(container, request)}; the node has {present}"))
    if code is Code.NUMA_MISMATCH:
        found.insert(
            0, Reason(code, f"{_who(container, request)} of one NUMA node; no NUMA node has that many that fit")
        )
    if code is Code.SEARCH_LIMIT:
        found.insert(0, Reason(code, f"not decided: {STEPS} ways to share out the cards were tried and none was found"))
    return tuple(found)


def _who(container: Container, request: DeviceRequest) -> str:
    cards = "card" if request.count == 1 else "cards"
    return f"{container.kind} container {container.name} wants {request.count} {cards}"


def _so_far(fitting: int, request: DeviceRequest) -> str:
    return "" if request.count == 1 else f", {fitting} fit"


def _numbers(code: Code, cards: list[int], view: View, assignment: Assignment, request: DeviceRequest) -> str:
    """Return the numbers behind a code for these cards (device positions of a one-column view)."""
    nodes = view.nodes
    if code is Code.INSUFFICIENT_MEMORY and bool(np.all(nodes.layout[cards, 0] > 0)):
        wanted_mib = int(np.max(np.broadcast_to(wanted_memory(view, request), nodes.memory.shape)[cards, 0]))
        cores = f" and {request.cores} cores" if request.cores else ""
        return f"these cards in mig mode have no free place for an instance of at least {wanted_mib} MiB{cores}"
    if code is Code.INSUFFICIENT_MEMORY:
        own = 0 if assignment.memory is None else assignment.memory
        free = (view.free_memory - own)[:, 0]
        wanted = np.broadcast_to(wanted_memory(view, request), free[:, np.newaxis].shape)[:, 0]
        cards = [card for card in cards if not nodes.layout[card, 0]]
        best = max(cards, key=lambda card: int(free[card] - wanted[card]))
        if request.memory_percentage and not nodes.memory[best, 0] and not nodes.reserved_memory[best, 0]:
            percent = request.memory_percentage
            return f"{percent} percent wanted, of cards that do not tell their memory no part can be promised"
        reserved = int(nodes.reserved_memory[best, 0])
        beside = f", {reserved} more are reserved" if reserved else ""
        share_text = f" ({request.memory_percentage} percent)" if request.memory_percentage else ""
        return (
            f"{int(wanted[best])} MiB{share_text} wanted, the freest of these cards has {int(free[best])} MiB free of "
            f"{int(nodes.memory[best, 0])}{beside}"
        )
    if code is Code.INSUFFICIENT_CORES:
        own_cores = 0 if assignment.cores is None else assignment.cores
        best_cores = int(max((view.free_cores - own_cores)[cards, 0]))
        return f"cores {request.cores} wanted, the freest of these cards has {best_cores} free"
    if code is Code.INSUFFICIENT_SLOTS:
        return f"all slots are taken ({int(max(nodes.slots[cards, 0]))} on the largest of these cards)"
    if code is Code.EXCLUSIVE_CONFLICT:
        return _exclusive(cards, view, assignment)
    return _TEXT[code]


def _exclusive(cards: list[int], view: View, assignment: Assignment) -> str:
    held = view.requested.exclusive[:, 0] > 0
    if assignment.exclusive is not None:
        held = held | assignment.exclusive[:, 0]
    taken = sum(bool(held[card]) for card in cards)
    texts = [
        (taken, "held exclusively by others"),
        (len(cards) - taken, "in use while the container wants an unused card (cores 100 or the mutex policy)"),
    ]
    return ", ".join(f"{number} {text}" for number, text in texts if number)


_TEXT = {
    Code.TYPE_MISMATCH: "the pod's annotations exclude this model",
    Code.MODE_MISMATCH: "the card's mode is not accepted, the card is in mig mode without any profile, "
    "or it holds slices of another size",
    Code.UUID_MISMATCH: "the pod's annotations exclude this card",
    Code.DEVICE_UNHEALTHY: "the card is registered as unhealthy, or its device plugin does not answer",
    Code.DEVICE_CORDONED: "the card is cordoned",
    Code.DEVICE_BLOCKED: "an allocation that cannot be read names the card, or the register names it twice",
    Code.DEVICE_OVERCOMMITTED: "more is held than the card has",
}
