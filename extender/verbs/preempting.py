"""kube-scheduler's preempt: which offered nodes to keep, and which pods to evict there.

Why it exists: kube-scheduler chooses victims by counts and asks which of them, and whom else, the cards need. It must
not evict. Invariants: only offered nodes are answered, each with at least one victim; every victim was offered or is a
pod of lower priority on that node; a pod that asks for no card gets back what was offered, less the nodes where whole
devices that it wants would still be missing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from itertools import compress

from accounting.answers import hopeless, raw_request
from accounting.answers.preemption import NoVictims, Occupied, Offer, Outcome, Preemptor, Standing, preempt
from accounting.demand import Demand
from accounting.pod import Pod
from accounting.pod_state import PodState
from extender.cluster import Cluster
from extender.wire.preemption_v1 import Candidate, PreemptionArgs, Victim, Victims, decode_plain

#: The most nodes that are searched: kube-scheduler takes one, and by default offers 100 or a tenth of all.
MOST_NODES = 96
#: The number of nodes that are searched together. If these give enough answers, the others are left out.
_AT_ONCE = 32
#: The number of answers that is enough.
_ENOUGH = 16


def victims(cluster: Cluster, args: PreemptionArgs, pod: Pod) -> Mapping[str, Victims]:
    """Return the victims by node, in the request's order. `pod`: the preemptor, unbound."""
    found = _victims_for_cards(cluster, args, pod)
    if not pod.raw:
        return found
    return {name: each for name, each in found.items() if _leave_raw_room(cluster, pod, name, each)}


def _leave_raw_room(cluster: Cluster, pod: Pod, node: str, chosen: Victims) -> bool:
    """Whether a pod has the whole devices that it wants on a node, and may have them, once these pods are gone."""
    devices, freed = cluster.raw, Counter[tuple[str, str]]()
    for victim in filter(None, (devices.pod(each.uid) for each in chosen.pods)):
        for key, units in devices.beyond_holds(victim).items():
            freed[node, key] -= units
            freed[victim.namespace, key] -= units
    request = raw_request(pod)
    return not devices.over_budget(request, freed) and not devices.shortages(request, node, freed)


def _victims_for_cards(cluster: Cluster, args: PreemptionArgs, pod: Pod) -> Mapping[str, Victims]:
    """Return the victims by node whose cards the pod needs; all that were offered if it asks for no card."""
    if not pod.asks:
        return {name: Victims(tuple(each.pods()), each.pdb_violations) for name, each in args.candidates.items()}
    if pod.invalid or pod.info.never:
        return {}
    preemptor = preemptor_of(cluster, pod, plain=decode_plain(args.raw_pod))
    found: dict[str, Victims] = {}
    names = _promising(cluster, pod, args.candidates)
    for start in range(0, len(names), _AT_ONCE):
        some = names[start : start + _AT_ONCE]
        found |= _on(cluster, preemptor, {name: args.candidates[name] for name in some})
        if len(found) >= _ENOUGH:
            break
    return {name: found[name] for name in args.candidates if name in found}


def preemptor_of(cluster: Cluster, pod: Pod, *, plain: bool) -> Preemptor:
    """Return a pod as the preemptor. `plain`: only resources can keep it from a node."""
    info = pod.info
    room = None if info.room is None else info.room._replace(plain=plain and info.room.plain)
    vendors = cluster.settings.vendors
    ignored = frozenset(name for vendor in vendors for name in vendor.resources if name != vendor.count_resource)
    quota = partial(cluster.charges.check_without, pod) if cluster.quotas.limits_of(pod.namespace) else None
    return Preemptor(pod, info.priority, room, info.never, quota, ignored)


def _promising(cluster: Cluster, pod: Pod, candidates: Mapping[str, Candidate]) -> Sequence[str]:
    """Return nodes that could take the pod with all their pods gone, those with the fewest victims first."""
    known = cluster.cache.nodes
    names = [name for name in candidates if name in known]
    nodes: Iterable[str] = names
    if len(names) > _AT_ONCE:
        snapshot = cluster.cache.snapshot()
        may_do = ~hopeless(Demand.of(pod), snapshot)[snapshot.rows_of(names)]
        nodes = compress(names, may_do.tolist())
    offered = ((candidates[name], name) for name in nodes)
    ordered = nsmallest(MOST_NODES, [(each.violations or 0, len(each.raw or ()), name) for each, name in offered])
    return [name for *_, name in ordered]


def _on(cluster: Cluster, preemptor: Preemptor, candidates: Mapping[str, Candidate]) -> Iterator[tuple[str, Victims]]:
    """Return the victims on these nodes."""
    offered = {name: each.pods() for name, each in candidates.items()}
    offers = [
        Offer(_certain(cluster, occupied, uids), uids, cluster.nominations.before(preemptor, name))
        for name in candidates
        if (occupied := cluster.residents.occupied(name)) is not None
        for uids in [tuple(victim.uid for victim in offered[name])]
    ]
    outcomes = preempt(cluster.cache.snapshot(), preemptor, offers, cluster.residents.budgets.allowed)
    for offer, outcome in zip(offers, outcomes, strict=True):
        name = offer.occupied.node
        answer = _answer(cluster, offer, outcome, candidates[name].pdb_violations)
        if answer is not None:
            yield name, answer


def _certain(cluster: Cluster, occupied: Occupied, offered: Collection[str]) -> Occupied:
    """Return a node where pods that were not offered stay while nobody knows whether they have been bound.

    kube-scheduler has no such pod on the node once its bind got an Error, and drops an answer that names one.
    """
    state = cluster.cache.state
    if not any(state(pod.uid) is PodState.ASSUMED for pod in occupied.pods):
        return occupied
    pods = tuple(
        pod._replace(standing=Standing.PROTECTED)
        if pod.standing is Standing.EVICTABLE and pod.uid not in offered and state(pod.uid) is PodState.ASSUMED
        else pod
        for pod in occupied.pods
    )
    return occupied._replace(pods=pods)


def _answer(cluster: Cluster, offer: Offer, outcome: Outcome, violations: int) -> Victims | None:
    """Return an outcome as an answer, with the offered pods that are not known here; None without an outcome."""
    if isinstance(outcome, NoVictims):
        return None
    known = {pod.uid for pod in offer.occupied.pods}
    uids = [*(pod.uid for pod in outcome.pods), *(uid for uid in offer.uids if uid not in known)]
    if not uids:
        return None
    found = outcome.cost.violations
    if not cluster.residents.budgets.known:
        # Only kube-scheduler knows these pods.
        found = max(found, violations)
    return Victims(tuple(map(Victim, uids)), found)
