"""The order in which pods arrive.

Why it exists: results are means over orders, so an order must be reproducible from its seed. It must not know nodes.
Invariant: the same seed gives the same order on every machine and Python version that keeps `random.Random`.
Source of the method: the published experiments of FGD: shuffle, then draw at random with replacement until the demand
is reached. The shuffle is Python's, so a seed here is not the same order as there.
"""

import random
from collections.abc import Sequence

from extender.simulation.trace import Job


def arrivals(jobs: Sequence[Job], demand: Sequence[int], wanted: int, seed: int) -> list[int]:
    """Return positions in `jobs`, in the order of arrival, until their demand (in any unit) has reached `wanted`."""
    rng = random.Random(seed)  # noqa: S311 - an experiment, no secret
    order = list(range(len(jobs)))
    rng.shuffle(order)
    found: list[int] = []
    arrived = 0
    for position in order:
        if arrived >= wanted:
            return found
        found.append(position)
        arrived += demand[position]
    if not any(demand):
        return found
    while arrived < wanted:
        position = rng.randrange(len(jobs))
        found.append(position)
        arrived += demand[position]
    return found
