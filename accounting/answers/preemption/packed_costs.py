"""Costs of sets as single integers that add up.

Why it exists: thousands of sets are put in order for one question, and adding and comparing two integers takes a small
part of the time that tuples of nine take. It must not know whether a set helps. Invariant: two sets of the same
candidates compare as their `Cost` does, violations apart.
"""

from collections.abc import Sequence
from itertools import accumulate

from accounting.answers.preemption.candidates import NodePod

_LEAST = -(2**31)


class PackedCosts:
    """The parts of a set's cost, by place in the list of candidates.

    The cost of a set is `leads` of its first pod, its most important one, plus `adds` of all its pods. An integer has a
    field for each number of `Cost`, the first one in the highest bits, wide enough for all candidates together.
    """

    def __init__(self, candidates: Sequence[NodePod]) -> None:
        """`candidates`: the most important first."""
        freed = [_freed(pod) for pod in candidates]
        latest = max(pod.started for pod in candidates)
        columns = [
            [pod.priority - _LEAST for pod in candidates],
            [1] * len(candidates),
            *([each[at] for each in freed] for at in range(3)),
            [latest - pod.started for pod in candidates],
            _names(candidates),
        ]
        widths = [sum(column).bit_length() for column in columns]
        # Where each field begins: what is below it takes the bits before.
        shifts = [sum(widths[at + 1 :]) for at in range(len(widths))]
        totals, number, slots, memory, cores, started, _ = shifts
        self.adds = [
            (total << totals) + (1 << number) + (freed_slots << slots) + (mib << memory) + (percent << cores) + name
            for total, (freed_slots, mib, percent), name in zip(columns[0], freed, columns[-1], strict=True)
        ]
        top = totals + widths[0]
        self.leads = [(total << top) + (after << started) for total, after in zip(columns[0], columns[-2], strict=True)]
        least = [*reversed(list(accumulate(reversed(columns[0]), min)))]
        self.least_after = [*((total << totals) + (1 << number) for total in least), 0]
        """What any pod at or after a place adds at least."""


def _names(candidates: Sequence[NodePod]) -> list[int]:
    """Return numbers whose sums compare, for sets of the same size, as their sorted UIDs do.

    Of two such sets that one is first whose smallest UID is not in the other one. So each UID has a bit, the smallest
    the highest, and the set with the larger number of bits is first; taken from a constant, it has the smaller sum.
    """
    size = len(candidates)
    names = [0] * size
    for rank, at in enumerate(sorted(range(size), key=lambda at: candidates[at].uid)):
        names[at] = (1 << size) - (1 << (size - 1 - rank))
    return names


def _freed(pod: NodePod) -> tuple[int, int, int]:
    slots = memory = cores = 0
    for use in pod.record.held:
        slots, memory, cores = slots + use.slots, memory + use.memory, cores + use.cores
    return slots, memory, cores
