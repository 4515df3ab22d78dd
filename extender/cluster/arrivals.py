"""What the pods that were told of last ask for: from these the expected workload is learned.

It must not know where pods come from. Invariant: each pod counts once, when it is told of for the first time.
"""

from collections import deque

from accounting.packing.shape import Asked
from accounting.pod import Pod

#: Enough for rare large pods to show, few enough to stay current.
REMEMBERED = 10_000


class Arrivals:
    """The last pods that were told of."""

    def __init__(self) -> None:
        self.last: deque[Asked] = deque(maxlen=REMEMBERED)
        self.count = 0
        """How many pods were told of so far."""

    def note(self, pod: Pod) -> None:
        """Remember what a pod asks for that is told of for the first time."""
        self.last.append(Asked(pod.containers, pod.cpu_milli, pod.selection))
        self.count += 1
