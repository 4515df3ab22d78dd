"""The last decisions: what a pod asked for, which nodes refused it and why, the scores, and the result of its bind.

Why it exists: people ask "why did it not go there" minutes later, when the state has changed. It must not judge, and
must not keep lists of nodes. Invariant: memory is bounded, whatever the questions: it keeps counts and a few names per
decision, a few decisions per pod, and the last decisions over all pods. A name is kept as the node's own text: if texts
of a request stayed, the thousands around them would leave holes, and later requests would miss the CPU cache.
"""

import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from accounting.answers import Verdict
from accounting.pod import Container, Pod
from accounting.status import CODES

#: The number of decisions kept over all pods, and of pods whose own last decisions are kept.
KEPT = 1_000
KEPT_PER_POD = 5
#: The number of nodes named per reason; the others are counted.
NAMED = 10
_BEGINNING = 256


@dataclass(slots=True)
class Refused:
    """The nodes that refused for one reason."""

    code: str
    count: int
    nodes: tuple[str, ...]
    """The first of these nodes, in the order of the request."""


@dataclass(slots=True)
class Decision:
    """One filter call of a pod and what followed."""

    pod: str
    uid: str
    at: float
    """Unix time of the answer, in seconds."""
    asked: tuple[Container, ...]
    node_count: int
    feasible: int
    refused: tuple[Refused, ...]
    seconds: float
    """How long filter took."""
    repeats: int = 0
    """How often the same question was answered from memory since then."""
    scores: tuple[tuple[str, int], ...] = ()
    """The best nodes and their scores, from prioritize; the first one is the choice."""
    score_seconds: float | None = None
    bound: str | None = None
    """The node of the bind; None before a bind."""
    bind_error: str = ""
    """Why the bind failed; "" if it did not."""
    bind_seconds: float | None = None
    number: int = 0
    """Grows with each decision."""


@dataclass(slots=True)
class Decisions:
    """Keeps the last decisions."""

    clock: Callable[[], float] = time.time
    changes: int = 0
    """How much was noted so far, repeats aside."""
    repeats: int = 0
    _all: deque[Decision] = field(default_factory=lambda: deque(maxlen=KEPT))
    _by_pod: OrderedDict[str, deque[Decision]] = field(default_factory=OrderedDict)

    def filtered(self, pod: Pod, names: Sequence[str], verdict: Verdict, seconds: float) -> Decision:
        """Note an answer of filter and return it. `names`: the nodes of the request, one per entry of the verdict."""
        feasible = int(np.count_nonzero(verdict.feasible))
        refused = () if feasible == len(names) else tuple(_refused(names, verdict))
        decision = Decision(pod.key, pod.uid, self.clock(), pod.containers, len(names), feasible, refused, seconds)
        self.changes += 1
        decision.number = self.changes
        self._all.append(decision)
        own = self._by_pod.setdefault(pod.uid, deque(maxlen=KEPT_PER_POD))
        own.append(decision)
        self._by_pod.move_to_end(pod.uid)
        if len(self._by_pod) > KEPT:
            self._by_pod.popitem(last=False)
        return decision

    def repeated(self, uid: str) -> None:
        """Note that a pod's last question was asked again on an unchanged state."""
        last = self.last(uid)
        if last is not None:
            self.repeats += 1
            last.repeats += 1

    def scored(self, uid: str, scores: Iterable[tuple[str, int]], seconds: float) -> None:
        """Note an answer of prioritize."""
        last = self.last(uid)
        if last is not None:
            self.changes += 1
            last.scores, last.score_seconds = tuple((sys.intern(name), score) for name, score in scores), seconds

    def bound(self, uid: str, node: str, error: str, seconds: float) -> None:
        """Note a bind and why it failed, "" if it did not."""
        last = self.last(uid)
        if last is not None:
            self.changes += 1
            last.bound, last.bind_error, last.bind_seconds = sys.intern(node), error, seconds

    def last(self, uid: str) -> Decision | None:
        """Return a pod's last decision."""
        own = self._by_pod.get(uid)
        return None if own is None else own[-1]

    def of_pod(self, uid: str) -> list[Decision]:
        """Return a pod's last decisions, newest first."""
        return list(reversed(self._by_pod.get(uid, ())))

    def of_name(self, pod: str) -> list[Decision]:
        """Return the kept decisions of a pod, given as namespace/name, newest first."""
        return [each for each in self.newest() if each.pod == pod]

    def newest(self) -> list[Decision]:
        """Return the last decisions on all pods, newest first."""
        return list(reversed(self._all))


def _refused(names: Sequence[str], verdict: Verdict) -> Iterable[Refused]:
    """Yield the reasons, the most frequent first, then by code."""
    codes = verdict.codes
    counts = np.bincount(codes[~verdict.feasible], minlength=len(CODES))
    found = [(-int(counts[number]), CODES[number].value, number) for number in np.flatnonzero(counts).tolist()]
    for negative, code, number in sorted(found):
        places = _first(verdict, number, min(NAMED, -negative))
        yield Refused(code, -negative, tuple(sys.intern(names[place]) for place in places))


def _first(verdict: Verdict, number: int, wanted: int) -> list[int]:
    """Return the first places with a code. If many have it, only the beginning is searched."""
    beginning = _places(verdict, number, _BEGINNING)[:wanted]
    return beginning if len(beginning) == wanted else _places(verdict, number, len(verdict.codes))[:wanted]


def _places(verdict: Verdict, number: int, end: int) -> list[int]:
    places: list[int] = np.flatnonzero((verdict.codes[:end] == number) & ~verdict.feasible[:end]).tolist()
    return places
