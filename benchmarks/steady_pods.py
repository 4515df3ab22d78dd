"""Lets pods arrive, be scheduled, run and end, at a steady rate, and keeps how long the extender took.

It exists because an hour's load is a flow: what comes must also go. It must not judge. Invariants: pods arrive by the
clock, however late they are placed; filter and prioritize are asked one pod at a time, as kube-scheduler does, binds
beside them; what is kept between two readings is bounded by the rate, and nothing is kept of a pod that is gone.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from queue import Empty, Queue
from typing import Any, Final, NamedTuple

import orjson

from benchmarks.http_load import Address, Answer, Connection
from tests.extender.objects import Json, asks, container, pod

VERBS: Final = ("filter", "prioritize", "bind")
NAMESPACE: Final = "default"
_BINDERS: Final = 4
_RETRY_SECONDS: Final = 0.2
_POLL_SECONDS: Final = 0.05
_COLLECT_SECONDS: Final = 2.0
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_NOW: Final = b'{"gracePeriodSeconds":0}'
#: Shares of one card, shares of two, and an init that needs more than the app.
_SHAPES: Final[tuple[tuple[list[Json], list[Json]], ...]] = (
    ([container("main", asks(1, 2000))], []),
    ([container("main", asks(1, 1000, 10))], []),
    ([container("main", asks(2, 1500, 5))], []),
    ([container("main", asks(1, 1000))], [container("init", asks(1, 3000))]),
)


class Reading(NamedTuple):
    """What happened since the reading before it."""

    nanoseconds: dict[str, list[int]]
    counts: Counter[str]
    waiting: int
    """Pods that have arrived and are not bound."""
    alive: int
    """Pods that exist on the API server."""


class Steady:
    """The flow of pods: their arrival, the scheduler, and the kubelets that end them."""

    def __init__(self, api: Address, extender: Address, names: Sequence[str], life_seconds: float, seed: int) -> None:
        self.failure: BaseException | None = None
        self.total: Counter[str] = Counter()
        self._api, self._extender = api, extender
        self._names = orjson.Fragment(orjson.dumps(list(names)))
        self._life = life_seconds
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._times: dict[str, list[int]] = {verb: [] for verb in VERBS}
        self._counts: Counter[str] = Counter()
        self._arriving, self._ending = threading.Event(), threading.Event()
        self._arrived: Queue[Json] = Queue()
        self._again: deque[tuple[float, Json]] = deque()
        self._chosen: Queue[tuple[Json, str]] = Queue()
        self._bound: Queue[str] = Queue()
        self._threads: list[threading.Thread] = []

    def start(self, per_second: float) -> None:
        """Begin. Work that fails ends everything; `failure` tells."""
        works: list[Callable[[], None]] = [lambda: self._arrive(per_second), self._schedule, self._kubelets]
        self._threads = [self._thread(work) for work in (*works, *[self._bind] * _BINDERS)]

    def reading(self) -> Reading:
        """Return what happened since the last call, and forget it."""
        with self._lock:
            times, counts = self._times, self._counts
            self._times, self._counts = {verb: [] for verb in VERBS}, Counter()
            self.total += counts
        return Reading(times, counts, self.waiting(), self.total["created"] - self.total["deleted"])

    def waiting(self) -> int:
        """How many pods have arrived and are not bound."""
        with self._lock:
            known = self.total + self._counts
        return known["created"] - known["bound"]

    def drain(self, seconds: float) -> int:
        """Let no more pods arrive and wait until those that have are bound; returns how many are not."""
        self._arriving.set()
        self._threads[0].join()
        deadline = time.monotonic() + seconds
        while self.waiting() and self.failure is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return self.waiting()

    def stop(self) -> None:
        """End all work."""
        self._arriving.set()
        self._ending.set()
        for thread in self._threads:
            thread.join()

    # -- work, each in a thread of its own ----------------------------------------------------------------------------

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the run has failed and says so
                self.failure = self.failure or error
                self._ending.set()
                self._arriving.set()

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _arrive(self, per_second: float) -> None:
        began = time.monotonic()
        number = 0
        with Connection(self._api) as api:
            while not self._arriving.wait(max(0.0, began + number / per_second - time.monotonic())):
                made = _expect(api.call("POST", _PODS, _manifest(f"steady-{number}", number)), 201)
                self._arrived.put(orjson.loads(made.body))
                self._count("created")
                number += 1

    def _schedule(self) -> None:
        with Connection(self._extender) as extender:
            while not self._ending.is_set():
                made = self._next()
                if made is not None:
                    self._place(extender, made)

    def _next(self) -> Json | None:
        if self._again and self._again[0][0] <= time.monotonic():
            return self._again.popleft()[1]
        try:
            return self._arrived.get(timeout=_POLL_SECONDS)
        except Empty:
            return None

    def _place(self, extender: Connection, made: Json) -> None:
        found = self._ask(extender, "filter", {"Pod": made, "Nodes": None, "NodeNames": self._names})
        if found.get("Error") or not found.get("NodeNames"):
            self._retry("filter_errors" if found.get("Error") else "filter_without_node", made)
            return
        scores = self._ask(extender, "prioritize", {"Pod": made, "Nodes": None, "NodeNames": found["NodeNames"]})
        best = max(each["Score"] for each in scores)
        self._chosen.put((made, self._random.choice([each["Host"] for each in scores if each["Score"] == best])))

    def _bind(self) -> None:
        with Connection(self._extender) as extender:
            while not self._ending.is_set():
                try:
                    made, node = self._chosen.get(timeout=_POLL_SECONDS)
                except Empty:
                    continue
                meta = made["metadata"]
                names = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"]}
                if self._ask(extender, "bind", names | {"Node": node})["Error"]:
                    self._retry("bind_errors", made)
                else:
                    self._bound.put(meta["name"])
                    self._count("bound")

    def _kubelets(self) -> None:
        """Each pod runs, and ends after its time: every other one succeeds and is collected later."""
        due: list[tuple[float, str, str]] = []
        with Connection(self._api) as api:
            while not self._ending.is_set():
                try:
                    name = self._bound.get(timeout=_POLL_SECONDS if not due else min(_POLL_SECONDS, _until(due[0][0])))
                except Empty:
                    pass
                else:
                    self._report(api, name, "Running")
                    step = "Succeeded" if int(name.rpartition("-")[2]) % 2 else "deleted"
                    heapq.heappush(due, (time.monotonic() + self._life, name, step))
                while due and due[0][0] <= time.monotonic():
                    _, name, step = heapq.heappop(due)
                    if step == "deleted":
                        _expect(api.call("DELETE", f"{_PODS}/{name}", _NOW), 200)
                        self._count("deleted")
                    else:
                        self._report(api, name, step)
                        heapq.heappush(due, (time.monotonic() + _COLLECT_SECONDS, name, "deleted"))

    def _report(self, api: Connection, name: str, phase: str) -> None:
        body = orjson.dumps([{"path": f"{_PODS}/{name}/status", "body": {"status": {"phase": phase}}}])
        _expect(api.call("POST", "/_test/patch", body), 200)

    # -- helpers --------------------------------------------------------------------------------------------------

    def _ask(self, extender: Connection, verb: str, body: Json) -> Any:  # noqa: ANN401 - a JSON value
        answer = _expect(extender.call("POST", f"/{verb}", orjson.dumps(body)), 200)
        with self._lock:
            self._times[verb].append(answer.nanoseconds)
        return orjson.loads(answer.body)

    def _retry(self, why: str, made: Json) -> None:
        self._count(why)
        self._again.append((time.monotonic() + _RETRY_SECONDS, made))

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1


def manifest_of(name: str) -> bytes:
    """A pod that asks for a card, for who needs one that nobody schedules."""
    return _manifest(name, 0)


def _manifest(name: str, number: int) -> bytes:
    containers, inits = _SHAPES[number % len(_SHAPES)]
    return orjson.dumps(pod(name, containers, inits=inits, namespace=NAMESPACE, uid=None))


def _until(moment: float) -> float:
    return max(0.001, moment - time.monotonic())


def _expect(answer: Answer, status: int) -> Answer:
    if answer.status != status:
        raise RuntimeError(f"{answer.status}: {answer.body[:300].decode(errors='replace')}")
    return answer
