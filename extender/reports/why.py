"""Why a pod waits, as a few numbers, and what would have to change.

Why it exists: `explain` lists every node, which is too long to read at 10,000 nodes. It must not print or change
anything. Invariants: the counts are filter's; without the pods in the way, filter would pass the node.

The answer is made in steps of a few milliseconds, so that a server can answer others in between.
"""

from collections.abc import Iterator

import numpy as np

from accounting.answers import (
    Near,
    Placement,
    explain_node,
    nearest,
    node_report,
    pods_in_the_way,
    raw_request,
    score_raw,
)
from accounting.cards import score_nodes
from accounting.pod import Pod
from accounting.pod_record import PodRecord
from accounting.state import Snapshot
from accounting.state.cache import Cache
from accounting.status import CODES
from extender.cluster import Cluster
from extender.reports.container_requests import asks
from extender.reports.explaining import booked_uid
from extender.reports.render import card_holders
from extender.reports.shapes import CardHolder, Holder, Lack, NearNode, Refusal, Why
from extender.reports.why_raw import raw_lack, raw_nearest

#: The number of nodes named per reason.
_NAMED = 10
#: The number of nodes whose lack is shown.
NEAREST = 3


def why(cluster: Cluster, pod: Pod, most: int = NEAREST) -> Why:
    """Return the whole answer, without steps."""
    *_, last = why_in_steps(cluster, pod, most)
    return last


def why_in_steps(cluster: Cluster, pod: Pod, most: int = NEAREST) -> Iterator[Why]:
    """Yield the answer as it grows, complete at the end. `most`: the number of nodes whose lack is shown."""
    known = cluster.pod_named(pod.namespace, pod.name)
    node = None if known is None else known.node
    pod = pod._replace(uid=booked_uid(cluster, pod), node=None, allocation=None)
    cache, snapshot, quota = cluster.cache, cluster.cache.snapshot(), cluster.quota_check(pod)
    names = cache.node_names()
    rows = snapshot.rows_of(names)
    verdict = cluster.filter(pod, rows)
    feasible = np.flatnonzero(verdict.feasible)
    answer: Why = {
        "pod": pod.key,
        "uid": pod.uid,
        "node": node,
        "asks": asks(pod.containers),
        "invalid": [str(each) for each in pod.invalid],
        "nodes": len(names),
        "fits": len(feasible),
        "refused": _refused(names, np.where(verdict.feasible, len(CODES), verdict.codes).tolist()),
        "best": [],
        "quota": [*map(str, quota.exceeded), *_over_raw_budgets(cluster, pod)],
        "nearest": [],
        "text": "",
    }
    answer["text"] = _first_text(answer)
    yield answer
    if pod.asks:
        values = cluster.packing.values(snapshot, pod, rows[feasible])
        scored = score_nodes(snapshot, rows[feasible], pod.policies.node, values=values)
        answer["best"] = [{"node": names[int(feasible[place])], "score": score} for place, score in scored]
        yield answer
    elif pod.raw:
        best = score_raw(cluster.raw, pod, [names[place] for place in feasible.tolist()])
        answer["best"] = [{"node": node, "score": score} for node, score in best]
        yield answer
    if pod.raw and not answer["text"]:
        yield from _raw_in_steps(cluster, pod, answer, most)
    yield answer
    if answer["text"]:
        return
    hopeful = rows[(rows >= 0) & ~verdict.unresolvable]
    name_of = {row: name for name, row in snapshot.rows.items()}
    if pod.raw:
        open_nodes = {node for node, short in cluster.raw.judged(raw_request(pod)).items() if short is None}
        hopeful = hopeful[[name_of[row] in open_nodes for row in hopeful.tolist()]]
    found = nearest(snapshot, pod, hopeful, most) if len(hopeful) else []
    answer["text"] = _hopeless(snapshot, len(hopeful))
    yield answer
    for near in found:
        answer["nearest"].append(_near(cluster, pod, name_of[near.row], near))
        answer["text"] = answer["nearest"][0]["text"]
        yield answer


def _first_text(answer: Why) -> str:
    """Return the sentence if it needs no look at single nodes; else an empty text."""
    if answer["invalid"]:
        return answer["invalid"][0]
    if answer["quota"]:
        return answer["quota"][0]
    return f"fits {answer['fits']} of {answer['nodes']} nodes" if answer["fits"] else ""


def _over_raw_budgets(cluster: Cluster, pod: Pod) -> list[str]:
    return [str(each) for each in cluster.raw.over_budget(raw_request(pod))] if pod.raw and not pod.invalid else []


def _raw_in_steps(cluster: Cluster, pod: Pod, answer: Why, most: int) -> Iterator[Why]:
    """Add what nodes lack of whole devices, if all of them lack some."""
    lack = raw_lack(cluster, pod)
    answer["text"] = lack
    for near in raw_nearest(cluster, pod, most) if lack else ():
        yield answer
        answer["nearest"].append(near)
        if near["text"].startswith(lack):
            answer["text"] = near["text"]


def _hopeless(snapshot: Snapshot, hopeful: int) -> str:
    if hopeful:
        return f"{hopeful} nodes would take it with all their pods gone"
    largest = int(snapshot.nodes.memory.max(initial=0))
    return f"no node would take it even with every pod gone; the largest card has {largest} MiB"


def _refused(names: list[str], codes: list[int]) -> list[Refusal]:
    """Return the reasons by number of nodes, then code."""
    counted: dict[int, list[str]] = {}
    for name, code in zip(names, codes, strict=True):
        if code < len(CODES):
            counted.setdefault(code, []).append(name)
    found = sorted(counted.items(), key=lambda each: (-len(each[1]), CODES[each[0]].value))
    return [{"code": CODES[code].value, "count": len(own), "nodes": own[:_NAMED]} for code, own in found]


def _near(cluster: Cluster, pod: Pod, node: str, near: Near) -> NearNode:
    cache, quota = cluster.cache, cluster.quota_check(pod)
    uuids = {position: uuid for uuid, position in cache.positions(node).items()}
    container = pod.containers[near.container].name
    held = {each.uuid: each for each in node_report(cache, node)}
    cards: list[Lack] = [
        {
            "uuid": uuids[each.position],
            "memory": each.memory,
            "cores": each.cores,
            "slots": each.slots,
            "occupied": each.occupied,
            "holders": card_holders(held[uuids[each.position]]),  # type: ignore[typeddict-item]
        }
        for each in near.cards
    ]
    blocking = pods_in_the_way(cache, pod, node, quota)
    holders = None if blocking is None else [_holder(each) for each in blocking]
    code, message = _reason(cache, pod, node)
    return {
        "node": node,
        "code": code,
        "message": message,
        "container": container,
        "cards": cards,
        "raw": [],
        "in_the_way": holders,
        "text": _text(node, container, cards, holders),
    }


def _reason(cache: Cache, pod: Pod, node: str) -> tuple[str, str]:
    outcome = explain_node(cache.snapshot(), pod, node, cache.positions(node))
    return ("", "") if isinstance(outcome, Placement) else (outcome[0].code.value, outcome[0].message)


def _holder(record: PodRecord) -> Holder:
    held = record.held
    return {
        "pod": record.key,
        "uid": record.uid,
        "slots": sum(use.slots for use in held),
        "memory": sum(use.memory for use in held),
        "cores": sum(use.cores for use in held),
        "units": 0,
    }


def _text(node: str, container: str, cards: list[Lack], holders: list[Holder] | None) -> str:
    """Return one sentence for a person."""
    lacks = [_lack(card) for card in cards]
    missing = f"{node} lacks {'; '.join(lacks)} for container {container}" if lacks else f"{node} has no place"
    if holders is None:
        others = _others(cards)
        held_by = f"; {', '.join(others)} {'holds' if len(others) == 1 else 'hold'} cards there" if others else ""
        return f"{missing}; no pod's end there would be enough{held_by}"
    ends = "ends" if len(holders) == 1 else "end"
    return f"{missing}; the pod fits once {', '.join(each['pod'] for each in holders)} {ends}"


def _others(cards: list[Lack]) -> list[str]:
    """Return those who hold the lacking cards and are no pods, by kind and name."""
    found: list[CardHolder] = [each for card in cards for each in card["holders"] if each["kind"] != "pod"]
    return list(dict.fromkeys(f"{each['kind']} {each['name']}" for each in found))


def _lack(card: Lack) -> str:
    amounts = [("MiB", card["memory"]), ("cores", card["cores"])]
    parts = [f"{amount} {unit}" for unit, amount in amounts if amount]
    parts += [f"{card['slots']} {'slot' if card['slots'] == 1 else 'slots'}"] if card["slots"] else []
    if card["occupied"]:
        return f"{card['uuid']} to itself"
    return f"{', '.join(parts)} on {card['uuid']}"
