"""The demands of the latest pods, from which the expected workload is learned.

It must not know where pods come from. Invariant: each pod counts once, when it is first seen.
"""

from collections import deque

from accounting.packing.shape import Asked
from accounting.pod import Pod

#: The number of kept pods: enough to include rare large ones, few enough to stay current.
REMEMBERED = 10_000


class Arrivals:
    """Keeps the demands of the latest pods."""

    def __init__(self) -> None:
        self.last: deque[Asked] = deque(maxlen=REMEMBERED)
        self.count = 0
        """How many pods were seen so far."""

    def note(self, pod: Pod) -> None:
        """Remember the demand of a pod that is seen for the first time."""
        self.last.append(Asked(pod.containers, pod.cpu_milli, pod.selection))
        self.count += 1
