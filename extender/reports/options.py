"""What could still be placed, as JSON.

It must not count. Invariant: with a namespace, what its budget leaves stands beside what the nodes have.
"""

from collections.abc import Sequence

from accounting.answers import card_options, raw_options
from extender.cluster import Cluster
from extender.reports.shapes import BudgetLeft, CardChoice, Options, RawChoice


def options(cluster: Cluster, sizes: Sequence[int] = (), namespace: str | None = None) -> Options:
    """Return free shares per card model and size (MiB), and free units per raw key."""
    cards: list[CardChoice] = [
        {
            "model": each.model,
            "cards": each.cards,
            "unused": each.unused,
            "free_memory": each.free_memory,
            "shares": [{"memory": share.memory, "free": share.free} for share in each.shares],
        }
        for each in card_options(cluster.cache.snapshot(), sizes)
    ]
    return {"cards": cards, "raw": [_raw(cluster, *each, namespace) for each in raw_options(cluster.raw)]}


def _raw(cluster: Cluster, key: str, nodes: int, free: int, largest: int, namespace: str | None) -> RawChoice:
    choice: RawChoice = {"key": key, "nodes": nodes, "free": free, "largest": largest}
    hard = None if namespace is None else cluster.raw.hard(namespace, key)
    if namespace is not None and hard is not None:
        used = cluster.raw.units.used_in(namespace, key)
        left: BudgetLeft = {"hard": hard, "used": used, "left": max(0, hard - used)}
        choice["budget"] = left
    return choice
