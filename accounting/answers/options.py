"""What could still be placed: free shares per card model and size, free units per raw key.

Why it exists: a catalogue that offers totals offers what is long taken. It must not know names of pods. Invariants:
what is said to be free is what filter would give out one by one, to pods that ask for no cores; cards in MIG mode give
out instances, so they are not counted here.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from accounting.holders import RawDevices
from accounting.state import BoolArray, Snapshot

#: Sizes of shares that are counted where none are given: so many of them make a card.
_PARTS = (8, 4, 2, 1)


class ShareOption(NamedTuple):
    """How many more shares of a size there is room for, on all cards of a model."""

    memory: int
    """MiB of one share."""
    free: int


class CardOption(NamedTuple):
    """One card model."""

    model: str
    cards: int
    """Cards that take pods, whether they have room or not."""
    unused: int
    """Those that nobody has a share of: so many whole cards can be had."""
    free_memory: int
    """MiB over all these cards."""
    shares: tuple[ShareOption, ...]


class RawOption(NamedTuple):
    """One raw key. Free units are summed over the nodes that have some; a node that owes some counts as 0."""

    key: str
    nodes: int
    """Nodes with a free unit."""
    free: int
    largest: int
    """The most that are free on one node, which is the most that one pod can have."""


def card_options(snapshot: Snapshot, sizes: Sequence[int] = ()) -> Iterator[CardOption]:
    """Yield every model, by name. `sizes`: of shares, in MiB; none: parts of the model's largest card."""
    nodes, requested = snapshot.nodes, snapshot.requested
    takes = nodes.present & nodes.healthy & ~nodes.cordoned & ~snapshot.blocked & ~snapshot.overcommitted
    takes &= (nodes.layout == 0) & nodes.registered & (requested.node_blocks == 0)
    for model, number in sorted(snapshot.type_ids):
        cards = takes & (nodes.type_id == number)
        if (nodes.present & (nodes.type_id == number) & (nodes.layout == 0)).any():
            yield _card_option(snapshot, model, cards, sizes)


def _card_option(snapshot: Snapshot, model: str, cards: BoolArray, sizes: Sequence[int]) -> CardOption:
    requested = snapshot.requested
    memory = np.maximum(snapshot.free_memory[cards], 0)
    largest = int(snapshot.nodes.memory[cards].max(initial=0))
    wanted = sorted(set(sizes)) or sorted({largest // part for part in _PARTS if largest // part})
    # An exclusive holder keeps everybody out, and a card without a free core everybody who asks for none.
    cores = (snapshot.free_cores[cards] > 0) | (snapshot.nodes.cores[cards] == 0)
    open_slots = np.where((requested.exclusive[cards] == 0) & cores, np.maximum(snapshot.free_slots[cards], 0), 0)
    shares = tuple(ShareOption(size, int(np.minimum(memory // size, open_slots).sum())) for size in wanted)
    unused = int(np.count_nonzero(requested.slots[cards] == 0))
    return CardOption(model, int(np.count_nonzero(cards)), unused, int(memory[open_slots > 0].sum()), shares)


def raw_options(devices: RawDevices) -> Iterator[RawOption]:
    """Yield every raw key that some node has, by name."""
    for key in devices.advertised():
        used = devices.units.of_key(key)
        free = [have - used.get(node, 0) for node, have in devices.allocatable(key).items()]
        open_nodes = [units for units in free if units > 0]
        yield RawOption(key, len(open_nodes), sum(open_nodes), max(open_nodes, default=0))
