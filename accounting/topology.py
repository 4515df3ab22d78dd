"""How a node's cards are linked, and whether containers must keep to one NUMA node there.

Why it exists: two annotations of a node and one label become plain values here. It must not know JSON; it takes decoded
values. Invariants: links are symmetric, each pair is named once, and only between cards that the node registers; what
cannot be read is a problem and adds no link.
Sources: HAMi v2.10's pair scores (its device plugin writes them with ENABLE_TOPOLOGY_SCORE). The kubelet does not put
its Topology Manager policy into the Node, so that is read from a label or annotation of our own, with the kubelet's
words, and from Koordinator's label.
"""

from collections.abc import Iterable, Mapping, Sequence

from accounting.status import Problem, ProblemCode

#: Label or annotation of a node -> the value that means: all cards of a container come from one NUMA node.
SINGLE_NUMA = {
    "gpu-extender.io/topology-manager-policy": "single-numa-node",
    "node.koordinator.sh/numa-topology-policy": "SingleNUMANode",
}
#: Above 18 NVLinks between two cards many times over; sums over a node stay far below 2^63.
_MOST_SCORE = 2**31 - 1

#: The score of one NVLink; all other links score less.
_NVLINK_SCORE = 100

#: Two UUIDs in order, and the score of their link; the higher, the closer.
Link = tuple[str, str, int]


def is_single_numa(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a node says that its kubelet refuses containers with devices of several NUMA nodes."""
    return any(value in (labels.get(key), annotations.get(key)) for key, value in SINGLE_NUMA.items())


def link_groups(scores: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return a group's number per card: cards that NVLinks join, directly or through others, are of one group.

    `scores`: (card, card). A group is numbered by its first card.
    """
    groups = list(range(len(scores)))
    for card, row in enumerate(scores):
        for other, score in enumerate(row[: len(scores)]):
            if score >= _NVLINK_SCORE and groups[other] != groups[card]:
                joined = sorted((groups[card], groups[other]))
                groups = [joined[0] if group == joined[1] else group for group in groups]
    return tuple(groups)


def read_links(node: str, value: object, uuids: Iterable[str]) -> tuple[tuple[Link, ...], tuple[Problem, ...]]:
    """Read decoded pair scores: a list of {"uuid": ..., "score": {uuid: number}}.

    An entry that cannot be used is left out and reported. Cards that the node does not register are left out without a
    report, because the two annotations are written one after the other. Of two directions that differ the lower score
    counts.
    """
    known, links = set(uuids), dict[tuple[str, str], int]()
    problems = []
    if not isinstance(value, list):
        return (), (_problem(node, f"pair scores: must be a list, is {type(value).__name__}"),)
    for position, entry in enumerate(value):
        read = _entry(entry)
        if isinstance(read, str):
            problems.append(_problem(node, f"pair scores: entry {position}: {read}"))
            continue
        uuid, scores = read
        for other, score in scores.items():
            if other != uuid and {uuid, other} <= known:
                pair = min(uuid, other), max(uuid, other)
                links[pair] = min(score, links.get(pair, score))
    return tuple((a, b, score) for (a, b), score in sorted(links.items())), tuple(problems)


def unreadable_links(node: str, why: str) -> tuple[tuple[Link, ...], tuple[Problem, ...]]:
    """Return no links, for an annotation that cannot be read at all."""
    return (), (_problem(node, f"pair scores: {why}"),)


def _entry(entry: object) -> tuple[str, Mapping[str, int]] | str:
    if not isinstance(entry, Mapping):
        return f"must be an object, is {type(entry).__name__}"
    uuid, scores = entry.get("uuid"), entry.get("score") or {}
    if not isinstance(uuid, str) or not isinstance(scores, Mapping):
        return "must have a uuid and an object of scores"
    for other, score in scores.items():
        if type(score) is not int or not 0 <= score <= _MOST_SCORE:
            return f"score of {uuid} and {other}: {score!r}: must be an integer from 0 to {_MOST_SCORE}"
    return uuid, scores


def _problem(node: str, why: str) -> Problem:
    return Problem(ProblemCode.UNREADABLE_REGISTER, f"node {node}", why)
