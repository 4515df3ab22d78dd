"""What became of preemptions, for metrics.

It must not know pods.
"""

from enum import StrEnum


class End(StrEnum):
    """How a preemption ended."""

    BOUND = "bound"
    """The pod has a node."""
    GONE = "gone"
    """The pod was deleted, or has ended."""
    TIMEOUT = "timeout"
    """The pod had no node when the time was over."""
    USELESS = "useless"
    """On the chosen node the pod would not fit any more, whoever went."""
    REFUSED = "refused"
    """The API server refuses a write that it takes."""


#: Upper bounds of the histogram, in seconds.
BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Counts:
    """Counters of one process."""

    def __init__(self) -> None:
        self.ends: dict[End, int] = dict.fromkeys(End, 0)
        self.victims = 0
        """Evictions that were accepted."""
        self.not_accepted = 0
        """Evictions that were not accepted, each time."""
        self.seconds = 0.0
        """From refusal to node, summed up over the pods that got one."""
        self._within = [0] * (len(BUCKETS) + 1)

    def bound(self, seconds: float) -> None:
        """Note how long a pod waited from its refusal to its node."""
        self.seconds += seconds
        self._within[next((at for at, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))] += 1

    def buckets(self) -> list[tuple[str, int]]:
        """Return upper bound and number of pods up to it."""
        names, total, found = [*map(str, BUCKETS), "+Inf"], 0, []
        for name, number in zip(names, self._within, strict=True):
            total += number
            found.append((name, total))
        return found
