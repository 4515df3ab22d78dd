"""Which slices of cards in MIG mode pods hold.

Why it exists: slices are a set, so what a pod releases is known only from a count of holders per slice. It must not
know arrays. Invariants: the counts are the sums over the pods that were counted; a pod whose instances cannot be told
holds every slice of the card (HAMi#2088), and that is a problem.
"""

from collections.abc import Iterable, Iterator

from accounting.mig_profiles import EVERY_SLICE, MAX_SLICES, OVERLAPPING, MigLayout, held_slices
from accounting.pod_record import PodRecord
from accounting.status import Problem, ProblemCode


class SliceTable:
    """Counts by node, card and slice."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, list[int]]] = {}
        self._problems: dict[str, dict[str, Problem]] = {}  # pod UID -> card UUID -> what is wrong

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with pods' instances."""
        return (problem for by_card in self._problems.values() for problem in by_card.values())

    def count(self, node: str, layout: MigLayout, uuid: str, record: PodRecord, sign: int) -> int:
        """Count a pod's instances on a card, or take them away; returns the slices held now, or OVERLAPPING."""
        instances = dict(record.instances).get(uuid)
        bits = None if instances is None else held_slices(layout, instances)
        if bits is None:
            self._note(node, uuid, record, sign)
            bits = EVERY_SLICE
        counts = self._counts.setdefault(node, {}).setdefault(uuid, [0] * MAX_SLICES)
        for at in range(MAX_SLICES):
            counts[at] += sign * (bits >> at & 1)
        if max(counts) > 1:
            return OVERLAPPING
        return sum(count << at for at, count in enumerate(counts))

    def overlapping(self, node: str) -> frozenset[str]:
        """Return the cards of a node on which some slice has several holders."""
        return frozenset(uuid for uuid, counts in self._counts.get(node, {}).items() if max(counts) > 1)

    def clear(self, node: str, pods: Iterable[str]) -> None:
        """Forget a node's counts; its pods (by UID) are counted again."""
        self._counts.pop(node, None)
        for uid in pods:
            self._problems.pop(uid, None)

    def _note(self, node: str, uuid: str, record: PodRecord, sign: int) -> None:
        by_card = self._problems.setdefault(record.uid, {})
        if sign > 0:
            message = f"its instances on card {uuid} of node {node} cannot be told, so it holds all of the card"
            by_card[uuid] = Problem(ProblemCode.UNDECODABLE_ALLOCATION, f"pod {record.key}", message)
        else:
            by_card.pop(uuid, None)
        if not by_card:
            del self._problems[record.uid]
