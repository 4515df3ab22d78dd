"""What a pod looks like to the packing policies: a few numbers instead of containers.

Why it exists: the expected workload is a list of shapes with their shares, so pods with equal requests must be one
shape. It must not judge whether a pod fits; `fit` does that exactly, for every container, init and sidecar. Invariant:
a shape is a pure function of what the pod asks for.

Several GPU containers of a pod count as if they shared cards as far as they fit on one, by the order-aware rule; the
number of cards is the largest of any container. Of a pod that asks for cards of several vendors, the first vendor
counts.
"""

from typing import NamedTuple

from accounting.holdings import peak_and_steady
from accounting.pod import Container, Pod
from accounting.selection import Selection, Tokens
from accounting.vendor import DEFAULT_VENDOR_KEY

#: A card is divided into this many units.
UNITS = 100


class Shape(NamedTuple):
    """What one pod asks for. `cards` is 0 for a pod that asks for CPU alone."""

    cpu_milli: int = 0
    cards: int = 0
    memory: int = 0
    """MiB of each card, beside `percentage`."""
    percentage: int = 0
    """Percent of each card's memory."""
    cores: int = 0
    use_types: tuple[Tokens, ...] = ()
    nouse_types: tuple[Tokens, ...] = ()
    vendor: str = DEFAULT_VENDOR_KEY


class CardClass(NamedTuple):
    """A kind of card: registered model, MiB, percent of cores, slots, vendor."""

    type: str
    memory: int
    cores: int
    slots: int
    vendor: str = DEFAULT_VENDOR_KEY


class Need(NamedTuple):
    """What a shape takes on a node with cards of one class: `units` of each of `cards` cards."""

    cards: int
    units: int


class Asked(NamedTuple):
    """The part of a pod on which its shape depends: all that is remembered of a pod that came."""

    containers: tuple[Container, ...]
    cpu_milli: int
    selection: Selection


def shape_of(pod: Pod | Asked) -> Shape:
    """Return a pod's shape."""
    selection = pod.selection
    asking = [
        (each.kind, asked) for each in pod.containers for asked in each.requests if asked.vendor == selection.vendor
    ]
    if not asking:
        return Shape(pod.cpu_milli)
    peak, _ = peak_and_steady((kind, (("", (r.memory, r.memory_percentage, r.cores)),)) for kind, r in asking)
    memory, percentage, cores = peak[""]
    cards = max(request.count for _, request in asking)
    types = selection.use_types, selection.nouse_types
    return Shape(pod.cpu_milli, cards, memory, percentage, cores, *types, selection.vendor)


def need_of(shape: Shape, card: CardClass) -> Need | None:
    """Return what a shape takes of cards of this class; None if it may not use them.

    The largest of its shares of memory, cores and slots, rounded up. More than a whole card becomes more cards.
    """
    if not shape.cards:
        return Need(0, 0)
    selection = Selection(use_types=shape.use_types, nouse_types=shape.nouse_types)
    if shape.vendor != card.vendor or not selection.accepts_type(card.type):
        return None
    memory = shape.memory + card.memory * shape.percentage // UNITS
    units = max(_share(memory, card.memory), _share(shape.cores, card.cores), _share(1, card.slots), 1)
    stacked = -(-units // UNITS)
    return Need(shape.cards * stacked, -(-units // stacked))


def _share(part: int, whole: int) -> int:
    """Return hundredths, rounded up; a dimension of size 0 is not shared."""
    return -(-part * UNITS // whole) if whole > 0 else 0
