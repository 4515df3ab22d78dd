"""Why a pod that wants whole devices waits, and what would have to change.

Why it exists: nodes with too few devices have no card that could be named, but VMs and pods that have the devices. It
must not decide whether a pod fits. Invariants: a node that never had as many devices is not named; with the pods in the
way gone, the node has enough.
"""

from collections.abc import Iterator

from accounting.answers import raw_reports, raw_request
from accounting.holders import RawRequest, Shortage
from accounting.pod import Pod
from extender.cluster import Cluster
from extender.reports.shapes import Holder, NearNode, RawLack


def raw_lack(cluster: Cluster, pod: Pod) -> str:
    """Return what the node lacks that lacks the fewest devices; empty if some node has enough."""
    judged = cluster.raw.judged(raw_request(pod))
    if not judged:
        return f"no node has devices of {pod.raw[0][0]}"
    short = sorted(_by_lack(judged))
    if len(short) < len(judged):
        return ""
    _, node, least = short[0]
    return _sentence(node, least)


def raw_nearest(cluster: Cluster, pod: Pod, most: int) -> Iterator[NearNode]:
    """Yield the nodes that lack the fewest devices, at most so many."""
    request = raw_request(pod)
    short = [each for each in sorted(_by_lack(cluster.raw.judged(request))) if each[2].adds <= each[2].allocatable]
    for _, node, least in short[:most]:
        lacks = cluster.raw.shortages(request, node) or (least,)
        yield _near(cluster, request, node, lacks)


def _by_lack(judged: dict[str, Shortage | None]) -> Iterator[tuple[int, str, Shortage]]:
    for node, each in judged.items():
        if each is not None:
            yield each.adds - each.free, node, each


def _near(cluster: Cluster, request: RawRequest, node: str, lacks: tuple[Shortage, ...]) -> NearNode:
    used = {each.key: each.holders for each in raw_reports(cluster.raw, node).get(node, ())}
    shown: list[RawLack] = [
        {
            "key": each.key,
            "missing": each.adds - each.free,
            "holders": [{"kind": kind, "name": name, "units": units} for kind, name, units in used.get(each.key, ())],
        }
        for each in lacks
    ]
    blocking = _in_the_way(cluster, request, node, shown)
    return {
        "node": node,
        "code": "InsufficientNodeCount",
        "message": str(lacks[0]),
        "container": "",
        "cards": [],
        "raw": shown,
        "in_the_way": blocking,
        "text": f"{_sentence(node, lacks[0])}{_way_out(shown, blocking)}",
    }


def _in_the_way(cluster: Cluster, request: RawRequest, node: str, lacks: list[RawLack]) -> list[Holder] | None:
    """Return the fewest pods whose end gives back what lacks, large ones first; None if VMs have too much of it."""
    chosen: dict[str, Holder] = {}
    pods = [each for each in cluster.raw.pods() if each.node == node and each.uid != request.uid]
    for lack in lacks:
        own = [(cluster.raw.beyond_holds(each).get(lack["key"], 0), each) for each in pods]
        missing = lack["missing"] - sum(units for units, each in own if each.uid in chosen)
        for units, each in sorted(own, key=lambda pair: (-pair[0], pair[1].namespace, pair[1].name, pair[1].uid)):
            if missing > 0 and units and each.uid not in chosen:
                chosen[each.uid] = _holder(each, units)
                missing -= units
        if missing > 0:
            return None
    return list(chosen.values())


def _holder(pod: RawRequest, units: int) -> Holder:
    name = f"{pod.namespace}/{pod.name}"
    return {"pod": name, "uid": pod.uid, "slots": 0, "memory": 0, "cores": 0, "units": units}


def _sentence(node: str, least: Shortage) -> str:
    return f"{node} lacks devices: {least}"


def _way_out(lacks: list[RawLack], blocking: list[Holder] | None) -> str:
    if blocking is not None:
        ends = "ends" if len(blocking) == 1 else "end"
        return f"; the pod fits once {', '.join(each['pod'] for each in blocking)} {ends}"
    others = [each for lack in lacks for each in lack["holders"] if each["kind"] != "pod"]
    names = list(dict.fromkeys(f"{each['kind']} {each['name']}" for each in others))
    return f"; {', '.join(names)} {'has' if len(names) == 1 else 'have'} devices there" if names else ""
