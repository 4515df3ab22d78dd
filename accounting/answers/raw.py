"""What filter, prioritize and bind say of whole devices under raw keys.

Why it exists: kube-scheduler counts raw keys as well, but it knows neither what is held for VMs nor budgets. It must
not count anything itself: `holders.RawDevices` does. Invariants: what is said of cards stays as it is where they
refuse; a node without room is one that an eviction could help, unless it never had as many devices.
"""

import numpy as np

from accounting.answers.verdicts import Verdict
from accounting.cards import MAX_SCORE
from accounting.holders import RawDevices, RawRequest, Shortage
from accounting.pod import Pod
from accounting.state import Rows, Snapshot
from accounting.status import CODE_NUMBER, Code, Reason


def raw_request(pod: Pod, node: str | None = None) -> RawRequest:
    """Return what a pod requests of raw keys; it must request some."""
    return RawRequest(pod.uid, pod.namespace, pod.name, pod.raw, node)


def with_raw(verdict: Verdict, devices: RawDevices, pod: Pod, snapshot: Snapshot, rows: Rows) -> Verdict:
    """Return a verdict on these rows with what raw keys and their budgets add to it."""
    if not pod.raw or pod.invalid:
        return verdict
    request = raw_request(pod)
    if devices.over_budget(request):
        raw = _uniform(snapshot.columns, Code.QUOTA_EXCEEDED)
    else:
        raw = _uniform(snapshot.columns, Code.NO_DEVICES)
        row_of, judged = snapshot.rows.get, devices.judged(request)
        known = [(row, short) for node, short in judged.items() if (row := row_of(node)) is not None]
        # Written at once: single elements of an array cost more than all the rest.
        open_rows = [row for row, short in known if short is None]
        raw.feasible[open_rows], raw.codes[open_rows], raw.unresolvable[open_rows] = True, 0, False
        full = [(row, short) for row, short in known if short is not None]
        full_rows = [row for row, _ in full]
        raw.codes[full_rows] = [CODE_NUMBER[_code(short)] for _, short in full]
        raw.unresolvable[full_rows] = [short.adds > short.allocatable for _, short in full]
    return _both(verdict, raw.of(np.maximum(rows, 0)), rows < 0)


def raw_reasons(devices: RawDevices, pod: Pod, node: str) -> tuple[Reason, ...]:
    """Return why raw keys or their budgets keep a pod from a node, the deciding reason first; empty if nothing does."""
    if not pod.raw or pod.invalid:
        return ()
    request = raw_request(pod)
    over = devices.over_budget(request)
    if over:
        return tuple(Reason(Code.QUOTA_EXCEEDED, str(each)) for each in over)
    return tuple(Reason(_code(each), str(each)) for each in devices.shortages(request, node))


def score_raw(devices: RawDevices, pod: Pod, nodes: list[str]) -> list[tuple[str, int]]:
    """Return the at most ten best of the nodes with room and their scores: 10 for the best, then 9 to 1 by rank."""
    best = devices.preferred(raw_request(pod), nodes, MAX_SCORE)
    return [(node, MAX_SCORE - rank) for rank, node in enumerate(best)]


def _code(short: Shortage) -> Code:
    return Code.INSUFFICIENT_NODE_COUNT if short.allocatable else Code.NO_DEVICES


def _uniform(length: int, code: Code) -> Verdict:
    refused = np.full(length, CODE_NUMBER[code], np.uint8)
    return Verdict(np.zeros(length, np.bool_), refused, np.ones(length, np.bool_))


def _both(cards: Verdict, raw: Verdict, unknown: np.typing.NDArray[np.bool_]) -> Verdict:
    """Return what both say; where the cards fit, what raw keys say decides. `unknown`: nodes that are not known."""
    feasible = cards.feasible & raw.feasible & ~unknown
    codes = np.where(cards.feasible, raw.codes, cards.codes).astype(np.uint8)
    codes[unknown] = CODE_NUMBER[Code.NODE_UNKNOWN]
    return Verdict(feasible, codes, (cards.unresolvable & ~cards.feasible) | raw.unresolvable | unknown, cards.searched)
