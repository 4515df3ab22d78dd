"""One node in the search for victims: its questions, and what follows from the answers.

Why it exists: many nodes are searched together, so that their sets are judged at once; this is the state of one node's
search. It must not judge sets. Invariants: a set helps only if the pod fits on the cards, and if every victim that
kube-scheduler offered is in it or provably need not be; pods that are leaving are gone in every set, and room that is
kept for others is taken in every set.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from accounting.answers.preemption.candidates import NodePod, Occupied, Preemptor, Standing, evictable, may_evict
from accounting.answers.preemption.node_resources import RoomCheck
from accounting.answers.preemption.order import NOTHING
from accounting.answers.preemption.removal import Masks, removal_of, sum_of
from accounting.answers.preemption.search import Question, Search, Victims, search
from accounting.answers.preemption.victim_sets import Set
from accounting.pod_record import PodRecord
from accounting.state import Snapshot


class NoVictims(StrEnum):
    """Why a node is left out of the answer."""

    WAIT = "wait"
    """Nothing is in the way, or pods that are already leaving free enough."""
    NOT_ENOUGH = "not enough"
    """The pod would not fit even without all pods that may be evicted for it, or nobody may be."""
    PROTECTED = "protected"
    """A victim is offered that must not be evicted, and it is not proven that it need not be."""


Outcome = Victims | NoVictims


class Offer(NamedTuple):
    """A node, and the pods that kube-scheduler would evict there."""

    occupied: Occupied
    uids: tuple[str, ...] = ()
    """Empty if only cards are short."""
    kept: tuple[NodePod, ...] = ()
    """Pods for which room is kept from this one, with the cards that they would get."""


class NodeSearch:
    """The search on one node."""

    def __init__(
        self, snapshot: Snapshot, preemptor: Preemptor, offer: Offer, allowed: Sequence[int], most_sets: int
    ) -> None:
        occupied, kept, offered = offer.occupied, offer.kept, frozenset(offer.uids)
        self.asked: list[Set] = [()]
        """The sets that are asked about; at first only the empty one."""
        self.outcome: Outcome = NoVictims.NOT_ENOUGH
        self._preemptor = preemptor
        self._positions = occupied.positions
        self._is_offered = bool(offered)
        self._all_known = offered.issubset(pod.uid for pod in occupied.pods)
        self._room = RoomCheck.of(preemptor, occupied, kept) if self._all_known else None
        self._candidates = tuple(
            pod for pod in evictable(preemptor, occupied.pods) if pod.uid in offered or self._may_help(pod)
        )
        self._offered = frozenset(at for at, pod in enumerate(self._candidates) if pod.uid in offered)
        self._spares_offered = any(
            pod.uid in offered and pod.standing is not Standing.LEAVING and not may_evict(preemptor, pod)
            for pod in occupied.pods
        )
        leaving = [pod.record for pod in occupied.pods if pod.standing is Standing.LEAVING]
        records, to_come = [pod.record for pod in self._candidates], [pod.record for pod in kept]
        gone = {preemptor.pod.uid, *(record.uid for record in (*leaving, *records))}
        staying = [*(pod.record for pod in occupied.pods if pod.uid not in gone), *to_come]
        self.removal = removal_of(snapshot, occupied.row, self._positions, records, staying)
        self.also_gone = sum_of(snapshot, self._positions, leaving)
        """Amounts freed by the pods that are leaving, less the room that is kept for others."""
        self.also_gone -= sum_of(snapshot, self._positions, to_come)
        self._question = Question(
            candidates=self._candidates,
            alike=_alike(self._candidates, offered),
            cards=None,
            most_cards=0,
            required=() if self._room is not None else tuple(sorted(self._offered)),
            allowed=allowed,
            most_sets=most_sets,
        )
        self._search: Search | None = None

    def masks(self) -> Masks:
        """Return (set, candidate): who is gone in each set that is asked about."""
        size = len(self._candidates)
        masks = np.zeros((len(self.asked), size), np.bool_)
        masks.ravel()[[number * size + at for number, chosen in enumerate(self.asked) for at in chosen]] = True
        return masks

    def records(self, chosen: Set) -> list[PodRecord]:
        """Return the pods of a set."""
        return [self._candidates[at].record for at in chosen]

    def begin(self) -> bool:
        """Return whether there are questions."""
        if not self._preemptor.preempts:
            return False
        if self._spares_offered and self._room is None:
            self.outcome = NoVictims.PROTECTED
            return False
        return True

    def tell(self, fits: Sequence[bool], *, only_cards: bool) -> bool:
        """Take the answers on `asked`; returns whether there are more questions.

        `only_cards`: only cards are in the pod's way on this node.
        """
        helps = [fit and self._has_room(chosen) for fit, chosen in zip(fits, self.asked, strict=True)]
        try:
            if self._search is not None:
                self.asked = self._search.send(helps)
                return True
            if helps[0]:
                # Offered pods that are not known here are always evicted.
                self.outcome = NoVictims.WAIT if self._all_known else Victims((), NOTHING)
                return False
            self._search = search(self._with_cards() if only_cards and self._has_any_room() else self._question)
            self.asked = next(self._search)
        except StopIteration as end:
            self.outcome = NoVictims.NOT_ENOUGH if end.value is None else end.value
            return False
        return True

    def _may_help(self, pod: NodePod) -> bool:
        """Whether the preemptor may need a pod to be gone, whether or not it was offered."""
        record = pod.record
        if record.peak or record.blocks is not None or record.total_peak.count:
            return True
        return self._is_offered and self._room is not None and self._room.gives(pod)

    def _has_room(self, chosen: Set) -> bool:
        if self._offered.issubset(chosen) and not self._spares_offered:
            return True
        return self._room is not None and self._room.suffices(self._candidates[at] for at in chosen)

    def _has_any_room(self) -> bool:
        """Whether every set that contains a pod leaves the room that kube-scheduler needs."""
        if not self._is_offered:
            return True
        return self._room is not None and all(self._room.suffices((pod,)) for pod in self._candidates)

    def _with_cards(self) -> Question:
        """Return the question with the cards that each candidate frees."""
        bits = {uuid: 1 << position for uuid, position in self._positions.items()}
        # A pod is on a card once, so the sum is the union.
        cards = [sum(bits.get(use.uuid, 0) for use in pod.record.peak) for pod in self._candidates]
        asked = [request.count for each in self._preemptor.pod.containers for request in each.requests]
        return replace(self._question, cards=tuple(cards), most_cards=sum(asked))


def _alike(candidates: Sequence[NodePod], offered: frozenset[str]) -> tuple[object, ...]:
    """Return for each candidate a value that is equal for candidates that are interchangeable but for their cost.

    A pod under several budgets counts against one of them by its place in the order of importance, so then all pods
    under a budget are different.
    """
    several = any(len(pod.budgets) > 1 for pod in candidates)
    return tuple(
        pod.uid
        if several and pod.budgets
        else (
            (pod.record.held, pod.record.peak, pod.record.vendor_totals, pod.record.blocks, pod.record.instances),
            (pod.room, pod.budgets, pod.uid in offered, pod.record.namespace),
        )
        for pod in candidates
    )
