"""The room that is kept on a node for nominated pods, which wait there for others to go.

Why it exists: between an eviction and the next try of the pod that it was made for, a pod of lower priority could take
the freed room, and the eviction would have been for nothing. It must not know why a pod is nominated. Invariants: the
room kept for a pod is what it would get once the leaving pods are gone, nothing if it would get nothing; a card must
have room both as it is now and as it will be. Source: kube-scheduler's RunFilterPluginsWithNominatedPods, which counts
nominated pods in the same way.
"""

from collections.abc import Sequence

import numpy as np

from accounting.answers.allocate import allocate_in
from accounting.answers.preemption.candidates import NodePod, Occupied, Standing
from accounting.answers.preemption.removal import removal_of, slices_of_cards, sum_of, without
from accounting.pod import Pod
from accounting.pod_record import PodRecord, record_pod
from accounting.state import Snapshot


def kept_for(snapshot: Snapshot, occupied: Occupied, nominated: Sequence[Pod]) -> tuple[NodePod, ...]:
    """Return the nominated pods with the cards that they will get on a node, the highest priority first.

    A pod that would not fit is left out: no room can be kept for it.
    """
    leaving = _leaving(occupied)
    staying = [pod.record for pod in occupied.pods if pod.standing is not Standing.LEAVING]
    uuids = {position: uuid for uuid, position in occupied.positions.items()}
    kept: list[NodePod] = []
    for pod in sorted(nominated, key=lambda pod: (-pod.info.priority, pod.uid)):
        placed = [one.record for one in kept]
        removal = removal_of(snapshot, occupied.row, occupied.positions, [], [*staying, *placed])
        gone = sum_of(snapshot, occupied.positions, leaving)
        gone -= sum_of(snapshot, occupied.positions, placed)
        view = without(snapshot, [(removal, np.zeros((1, 0), np.bool_), gone)])
        placement = allocate_in(view, pod, snapshot, uuids)
        if placement is not None:
            record = record_pod(pod._replace(node=occupied.node, allocation=placement.allocation))
            kept.append(NodePod(record, pod.info.priority, room=pod.info.room))
    return tuple(kept)


def beside_kept(snapshot: Snapshot, occupied: Occupied, kept: Sequence[NodePod]) -> Snapshot:
    """Return a one-node state such that what fits on it fits now and also once those pods have come.

    Per card and dimension, the larger of what is held now and what will be held then counts as held.
    """
    records = [pod.record for pod in kept]
    growth = sum_of(snapshot, occupied.positions, records)
    growth -= sum_of(snapshot, occupied.positions, _leaving(occupied))
    removal = removal_of(snapshot, occupied.row, occupied.positions, [], [])
    view = without(snapshot, [(removal._replace(slices=None), np.zeros((1, 0), np.bool_), -np.maximum(growth, 0))])
    for position, bits in slices_of_cards(snapshot, occupied.row, occupied.positions, records).items():
        held = int(view.requested.slices[position, 0])
        view.requested.slices[position, 0] = held if held < 0 or bits < 0 else held | bits
    return snapshot.alone(occupied.node, view.refreshed(), tuple(records))


def _leaving(occupied: Occupied) -> list[PodRecord]:
    return [pod.record for pod in occupied.pods if pod.standing is Standing.LEAVING]
