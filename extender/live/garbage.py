"""Keeping Python's garbage collector from stopping the event loop.

Why it exists: a full collection walks every object there is, with 100,000 pods for more than a second. It must not
keep anything alive. Invariant: as soon as a full collection takes long, what survived it is put out of the collector's
sight; right after it, hardly any garbage is among that. Frozen objects are freed as ever when nothing refers to them.
"""

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_OLDEST_GENERATION = 2
#: Two batches of survivors that take longer than this would come near the 50 ms that are allowed.
_LONG_SECONDS = 0.005
#: Collections of the middle generation to one in full. CPython's 10 let 90,000 survivors come together, which takes
#: 40 ms on a busy machine.
_YOUNG_PER_FULL = 3


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
        # What the imports made stays.
        gc.collect()
        gc.freeze()
        thresholds = gc.get_threshold()
        gc.set_threshold(*thresholds[:2], _YOUNG_PER_FULL)
        gc.callbacks.append(self._on_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._on_collection)
            gc.set_threshold(*thresholds)
            gc.unfreeze()

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
