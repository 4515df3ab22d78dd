"""Keeping Python's garbage collector from stopping the event loop.

Why it exists: a full collection visits every object, which takes more than a second with 100,000 pods. It must not keep
anything alive. Invariant: as soon as a full collection takes long, its survivors are frozen, so that the collector no
longer visits them; right after a collection they contain hardly any garbage. Frozen objects are still freed when
nothing refers to them.

CPython begins a collection by how many more objects were made than freed. An event makes objects and frees as many that
are frozen, so the young ones gather, 60,000 of them, until something else begins a collection, which takes 0.1 s then.
So collections begin by time as well.
"""

import asyncio
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_OLDEST_GENERATION = 2
#: Above this, two batches of survivors together would come near the allowed 50 ms.
_LONG_SECONDS = 0.005
#: Collections of the middle generation per full one. With CPython's 10, up to 90,000 survivors gather, which take 40 ms
#: on a busy machine.
_YOUNG_PER_FULL = 3
#: Pause between two collections of the young objects. In so long events leave too few to be noticed.
_YOUNG_SECONDS = 0.05
#: Every so many of them go over the middle generation, and over everything that is not frozen.
_MIDDLE_EVERY, _FULL_EVERY = 2, 4


class GarbagePace:
    """Freezes survivors when collections get long."""

    def __init__(self, long_seconds: float = _LONG_SECONDS) -> None:
        self.freezes = 0
        self.worst_seconds = 0.0
        self._long_seconds = long_seconds
        self._started = 0.0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the pace for a while."""
        # The objects made by imports stay for ever.
        gc.collect()
        gc.freeze()
        # CPython puts off a full collection until a quarter as many objects are new as the last one has left. Those of
        # imports are frozen, so it must forget their number; else the first one would visit tens of thousands at once.
        gc.collect()
        thresholds = gc.get_threshold()
        gc.set_threshold(*thresholds[:2], _YOUNG_PER_FULL)
        gc.callbacks.append(self._on_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_collection)
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    async def run(self) -> None:
        """Collect by time until cancelled."""
        number = 0
        while True:
            await asyncio.sleep(_YOUNG_SECONDS)
            number += 1
            gc.collect(0 if number % _MIDDLE_EVERY else 1 if number % _FULL_EVERY else _OLDEST_GENERATION)

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if info.get("generation") != _OLDEST_GENERATION:
            return
        if phase == "start":
            self._started = time.perf_counter()
            return
        took = time.perf_counter() - self._started
        self.worst_seconds = max(self.worst_seconds, took)
        if took > self._long_seconds:
            gc.freeze()
            self.freezes += 1
