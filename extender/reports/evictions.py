"""The pods that would have to go so that a pod that fits nowhere finds room.

It must not evict or print. Invariant: the victims are those that preempt would name if only cards were short.
"""

from typing import Any

from accounting.answers import hopeless
from accounting.answers.preemption import Offer, Victims, preempt
from accounting.demand import Demand
from accounting.pod import Pod
from extender.cluster import Cluster
from extender.verbs import preemptor_of

#: The most nodes that are searched, and that are shown.
_LOOKED_AT, _SHOWN = 256, 3


def evictions(cluster: Cluster, pod: Pod) -> list[dict[str, Any]]:
    """Return {"node", "violations", "victims": [{"pod", "uid", "priority"}]}, cheapest first, at most three."""
    if not pod.asks or pod.invalid:
        return []
    snapshot, preemptor = cluster.cache.snapshot(), preemptor_of(cluster, pod, plain=False)
    names = [name for name in cluster.cache.node_names() if name in cluster.cache.nodes]
    too_small = hopeless(Demand.of(pod), snapshot)[snapshot.rows_of(names)].tolist()
    hopeful = [name for name, small in zip(names, too_small, strict=True) if not small][:_LOOKED_AT]
    offers = [
        Offer(occupied, (), cluster.nominations.before(preemptor, name))
        for name in hopeful
        if (occupied := cluster.residents.occupied(name)) is not None
    ]
    outcomes = preempt(snapshot, preemptor, offers, cluster.residents.budgets.allowed)
    found = [
        (outcome.cost, offer.occupied.node, outcome)
        for offer, outcome in zip(offers, outcomes, strict=True)
        if isinstance(outcome, Victims)
    ]
    return [_shown(node, victims) for _, node, victims in sorted(found, key=lambda each: each[:2])[:_SHOWN]]


def _shown(node: str, victims: Victims) -> dict[str, Any]:
    pods = [{"pod": pod.record.key, "uid": pod.uid, "priority": pod.priority} for pod in victims.pods]
    return {"node": node, "violations": victims.cost.violations, "victims": pods}
