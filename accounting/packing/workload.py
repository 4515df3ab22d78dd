"""The expected workload on the cards of a cluster: tables, weights and prices, computed in advance.

Why it exists: building takes seconds, so it happens in the background and the result is swapped in as one value. It
must not know free capacity. Invariant: a workload is a pure function of a mix and a plan.

"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from accounting.packing.mix import Mix
from accounting.packing.offers import Offers, offers_for, unmerged_offers
from accounting.packing.shape import UNITS, CardClass, Need, Shape, need_of
from accounting.packing.table import CPU_STEPS, ONE, Arrival, ValueTable, build_table
from accounting.state import Int64Array, Rows, Snapshot

_WHOLE_CPU = 1000


class Weights(NamedTuple):
    """Weights of the terms of `fragmentation`, in thousandths of a card: one set, see docs/packing.md."""

    waste: int = 1000
    """V, of a card that is expected to stay unused."""
    saturation: int = 35
    """S, of a card that the workload as it is could not fill."""
    price: int = 300
    """P, of a card of the usual price."""
    least_free: int = 5
    """B, of a free card beside the pod."""
    idle: int = 50
    """I, of opening an idle node."""
    place: int = 100
    """R, of a card of a place for a large pod, when there are as many places as pods to come."""

    def of_card(self, name: str) -> int:
        """Return a weight in 1/ONE card."""
        weight: int = getattr(self, name) * (ONE // 1000)
        return weight


class Plan(NamedTuple):
    """What a workload must know of a cluster: card classes with their numbers of cards, and the largest node."""

    classes: tuple[tuple[CardClass, int], ...] = ()
    most_cards: int = 0
    most_cpu_milli: int = 0

    @property
    def usual_memory(self) -> int:
        """MiB of the most frequent card."""
        return max(self.classes, key=lambda entry: (entry[1], entry[0]))[0].memory if self.classes else 0


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """What is computed for the nodes of one card class."""

    card: CardClass
    offers: Offers
    typical: Offers
    """The typical ones alone."""
    table: ValueTable
    saturation_of_place: Int64Array
    """(kind,) Weight of one place for a kind, in 1/ONE card: its share of the demand times its units."""
    saturation_total: int
    """The sum of the weights, those of shapes included that may not use these cards."""
    price: int
    """Of one unit, in 1/ONE card."""
    large: Offers
    """The large shapes of the workload, see `Workload.large`; a shape that may not use these cards has no place."""


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Everything that the policies look up."""

    mix: Mix
    plan: Plan
    groups: tuple[Group, ...]
    cpu_step_milli: int
    demand: int
    """Units that all counted pods ask for."""
    large_demand: tuple[int, ...]
    """Per large shape: counted pods that ask for at least as much as it in every respect."""
    large_units: Int64Array
    """(large shape,) Units of one pod."""
    weights: Weights


def plan_of(snapshot: Snapshot) -> Plan:
    """Return the plan of a cluster. A node counts by the class of its first card."""
    nodes = snapshot.nodes
    rows = np.flatnonzero(nodes.registered & (nodes.card_count > 0))
    found, numbers = classes_of(snapshot, rows)
    cards = {card: int(nodes.card_count[rows[numbers == number]].sum()) for number, card in enumerate(found)}
    most_cards = int(nodes.card_count[rows].max(initial=0))
    return Plan(tuple(sorted(cards.items())), most_cards, int(nodes.cpu_milli[rows].max(initial=0)))


def classes_of(snapshot: Snapshot, rows: Rows) -> tuple[list[CardClass], Int64Array]:
    """Return the card classes of these rows, which have cards, and per row the number of its own."""
    nodes = snapshot.nodes
    kinds = nodes.type_id, nodes.memory, nodes.cores, nodes.slots, nodes.vendor
    first = np.stack([array[0, rows] for array in kinds])
    different, numbers = np.unique(first.astype(np.int64), axis=1, return_inverse=True)
    texts = {number: text for text, number in snapshot.ids.items()}
    vendors = tuple(snapshot.vendors)
    found = [
        CardClass(texts[model], memory, cores, slots, vendors[vendor])
        for model, memory, cores, slots, vendor in different.T.tolist()
    ]
    return found, numbers.reshape(-1)


def build_workload(mix: Mix, plan: Plan, weights: Weights | None = None) -> Workload:
    """Compute everything.

    Takes seconds, mostly for the tables. Classes on which the workload is alike share a table.
    """
    weights = weights or Weights()
    step = max(_WHOLE_CPU, -(-plan.most_cpu_milli // (CPU_STEPS * _WHOLE_CPU)) * _WHOLE_CPU)
    demands = {offer.shape: _demand(offer.shape, plan) for offer in mix}
    total = sum(weight * demands[shape].cards * demands[shape].units for shape, weight, _ in mix)
    large = [shape for shape, *_ in mix if _is_large(demands[shape], plan)]
    tables: dict[tuple[Arrival, ...], ValueTable] = {}
    groups = []
    for card, _ in plan.classes:
        offers = offers_for(mix, card)
        arrivals = tuple(offers.arrivals(step))
        if arrivals not in tables:
            tables[arrivals] = build_table(list(arrivals), plan.most_cards)
        price = _price(mix, card, plan, demands, total) * weights.of_card("price")
        groups.append(
            Group(
                card,
                offers,
                offers_for(tuple(offer for offer in mix if offer.typical), card),
                tables[arrivals],
                _priced(offers, total, weights),
                round(weights.of_card("saturation") / UNITS),
                round(price / UNITS),
                unmerged_offers(large, card),
            )
        )
    return Workload(
        mix,
        plan,
        tuple(groups),
        step,
        total,
        tuple(_demand_of_at_least(shape, mix, plan, demands) for shape in large),
        np.array([demands[shape].cards * demands[shape].units for shape in large], np.int64),
        weights,
    )


def _priced(offers: Offers, total: int, weights: Weights) -> Int64Array:
    """Return (kind,): the weight of one place for a kind, by its share of the demand and its units."""
    units = offers.cards * offers.units
    share = offers.weights * units / max(total, 1)
    return np.rint(share * weights.of_card("saturation") / UNITS).astype(np.int64) * units


def _demand(shape: Shape, plan: Plan) -> Need:
    """Return what a shape takes of the first cards that it may use; nothing if there are none."""
    needs = (need_of(shape, card) for card, _ in plan.classes)
    return next((need for need in needs if need is not None), Need(0, 0))


def _is_large(need: Need, plan: Plan) -> bool:
    """Whether a shape takes several cards and at least half of the largest node."""
    return need.cards > 1 and need.cards * need.units * 2 >= plan.most_cards * UNITS


def _price(mix: Mix, card: CardClass, plan: Plan, demands: dict[Shape, Need], total: int) -> float:
    """Return the demand per capacity of these cards, 1.0 where every shape may use every card."""
    capacity = sum(cards for _, cards in plan.classes)
    price = 0.0
    for shape, weight, _ in mix:
        if not shape.cards or need_of(shape, card) is None:
            continue
        usable = sum(cards for each, cards in plan.classes if need_of(shape, each) is not None)
        price += weight * demands[shape].cards * demands[shape].units / max(total, 1) * capacity / max(usable, 1)
    return price


def _demand_of_at_least(shape: Shape, mix: Mix, plan: Plan, demands: dict[Shape, Need]) -> int:
    """Return how many of the counted pods ask for at least as much as this shape, and may use no other cards."""
    may_use = {card for card, _ in plan.classes if need_of(shape, card) is not None}
    own, found = demands[shape].cards * demands[shape].units, 0
    for other, weight, _ in mix:
        asks_more = demands[other].cards * demands[other].units >= own and other.cpu_milli >= shape.cpu_milli
        if asks_more and {card for card, _ in plan.classes if need_of(other, card) is not None} <= may_use:
            found += weight
    return found
