"""The order of preference among the nodes that fit.

Why it exists: this is the answer to kube-scheduler's prioritize. It must not judge whether a node fits. Invariant:
the order is full (policy value, the policy's tie-breaks, node name), so equal input gives equal scores, and at most
ten nodes have a score above 0.

A node's value is its load without the pod: used/capacity summed over slots, memory and cores, each over all its cards.
Source: HAMi v2.10 node_policy.go. binpack prefers the highest value, then the least free memory; spread the lowest
value, then the most free memory.
"""

import numpy as np

from accounting.policy import NodePolicy, Weights
from accounting.state import FULL_LOAD, BoolArray, Int64Array, Rows, Snapshot, weighted_load

MAX_SCORE = 10


def node_loads(snapshot: Snapshot) -> Int64Array:
    """Return (row,): every node's load in units of 1/FULL_LOAD; 0 where a capacity is 0."""
    return weighted_load(Weights(), snapshot.used, snapshot.capacity)


def hami_score(load: int) -> float:
    """Return a node's or card's load on the scale of HAMi's scores, ten per full dimension."""
    return 10 * load / FULL_LOAD


def score_nodes(
    snapshot: Snapshot,
    rows: Rows,
    policy: NodePolicy,
    crowded: BoolArray | None = None,
    values: Int64Array | None = None,
) -> list[tuple[int, int]]:
    """Return (position in `rows`, score) of the at most ten best nodes: 10 for the best one, then 9 to 1 by rank.

    All others have 0 and are left out, since a long answer costs kube-scheduler a third of its throughput. -1 stands
    for an unknown node, which has no score. `crowded`, (row,): nodes that rank behind all others. `values`, one per
    entry of `rows`: a node's value by a policy that looks ahead (`packing`), in place of its load.
    """
    if values is None:
        sign = -1 if policy is NodePolicy.SPREAD else 1
        free_memory = snapshot.capacity[1] - snapshot.used[1]
        keys = [sign * node_loads(snapshot)[rows], -sign * free_memory[rows], -snapshot.name_rank[rows]]
    else:
        keys = [values, -snapshot.name_rank[rows]]
    if crowded is not None:
        keys.insert(0, -crowded[rows].astype(np.int64))
    best = _top(keys, np.flatnonzero(rows >= 0), MAX_SCORE)
    order = np.lexsort([key[best] for key in reversed(keys)])[::-1]
    return [(int(best[place]), MAX_SCORE - rank) for rank, place in enumerate(order)]


def _top(keys: list[Int64Array], candidates: Rows, count: int) -> Rows:
    """Return the `count` candidates with the highest keys, in any order, without sorting all of them."""
    if len(candidates) <= count or not keys:
        return candidates[:count]
    values = keys[0][candidates]
    cut = np.partition(values, len(values) - count)[len(values) - count]
    surely = candidates[values > cut]
    tied = _top(keys[1:], candidates[values == cut], count - len(surely))
    return np.concatenate([surely, tied])
