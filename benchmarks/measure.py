"""Asks the extender and its yardstick by turns, and keeps the times.

It exists so that whatever slows the machine slows all servers alike. It must not judge or print. Invariant: between two
measured questions the extender's state has changed, except where a case asks the same question again; nothing but the
calls is timed, and an error in place of an answer stops the benchmark.
"""

from __future__ import annotations

import gc
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from benchmarks.figures import EXTENDER, FILTER, PAIR, PARTS, PRIORITIZE, Figures, Kind, Size, Summary
from benchmarks.http_load import Connection
from benchmarks.questions import GREEDY_FAILS, INIT_SIDECAR_APP, TOO_LARGE, Change, Changes, Question, Questions

ASKS = {
    Kind.NEW: INIT_SIDECAR_APP,
    Kind.OTHER: INIT_SIDECAR_APP,
    Kind.AGAIN: INIT_SIDECAR_APP,
    Kind.REFUSED: TOO_LARGE,
    Kind.GREEDY: GREEDY_FAILS,
}


class Subject(NamedTuple):
    """A server to ask; the yardstick has no state to change."""

    name: str
    connection: Connection
    stateful: bool


class Case:
    """One row of the report: questions to several servers of one cluster."""

    def __init__(
        self, kind: Kind, size: Size, pods: int, nodes: Sequence[str], subjects: Sequence[Subject], changes: Changes
    ) -> None:
        self._kind, self._size, self._pods = kind, size, pods
        # In every order, because a server's time depends on which one was busy before it (3 % in one comparison).
        self._orders = itertools.cycle(itertools.permutations(subjects))
        self._changes = changes
        self._questions = Questions(nodes, ASKS[kind], seed=len(nodes) + pods, alike=kind is not Kind.OTHER)
        self._times: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._passed = 0

    def ask(self, *, keep: bool) -> None:
        """Ask every server the next question, each time in another order."""
        question = self._questions.next()
        change = self._changes.next()
        for subject in next(self._orders):
            if subject.stateful:
                apply(subject.connection, change)
            times, passed = ask(subject.connection, question)
            if self._kind is Kind.AGAIN:
                times, passed = ask(subject.connection, question)
            if subject.name == EXTENDER:
                self._passed = passed
            for part, nanoseconds in times.items() if keep else ():
                self._times[subject.name][part].append(nanoseconds)

    def figures(self) -> Figures:
        summaries = {
            name: {part: Summary.of(times[part]) for part in PARTS if part in times}
            for name, times in self._times.items()
        }
        return Figures(self._kind, self._size, self._pods, self._passed, summaries)


def ask(connection: Connection, question: Question) -> tuple[dict[str, int], int]:
    """Send filter and then, unless no node passed, prioritize; returns the times and how many nodes passed."""
    answer = connection.call("POST", "/filter", question.body())
    result = orjson.loads(answer.body)
    passed = result["NodeNames"]
    refused = len(result["FailedNodes"]) + len(result["FailedAndUnresolvableNodes"])
    assert answer.status == 200, answer
    assert result["Error"] == "", result["Error"]
    assert len(passed) + refused == len(question.names), "filter does not answer for every node"
    times = {PAIR: answer.nanoseconds, FILTER: answer.nanoseconds}
    if passed:
        scored = connection.call("POST", "/prioritize", question.body(passed))
        assert scored.status == 200, scored
        assert {host["Host"] for host in orjson.loads(scored.body)} <= set(passed), "prioritize names other nodes"
        times[PRIORITIZE] = scored.nanoseconds
        times[PAIR] += scored.nanoseconds
    return times, len(passed)


def apply(connection: Connection, change: Change) -> None:
    """Change the state; this is not timed."""
    answer = connection.call(*change)
    assert answer.status in (200, 201), answer


def measure(cases: Sequence[Case], calls: int, warm_up: int, progress: Callable[[], None]) -> list[Figures]:
    """Measure the cases by turns, again and again."""
    with quiet_collector():
        for number in range(warm_up + calls):
            for case in cases:
                case.ask(keep=number >= warm_up)
            progress()
    return [case.figures() for case in cases]


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep this process's garbage collector out of the times."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
