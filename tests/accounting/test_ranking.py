"""What the ranking says of a node is never more than its cheapest set costs, and mostly just that.

It exists because a bound that is too high leaves out the answer, which a choice among few nodes need not show, and one
that is too low makes every node be searched. It must not know how bounds are made. Invariant: 0 bounds above the cost
that trying every set finds; the seed of a failing cluster is printed.
"""

import os
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

from accounting.answers.preemption import (
    Chosen,
    Cost,
    Occupied,
    Offer,
    Preemptor,
    Victims,
    VictimTable,
    choose,
    cost_of,
    preempt,
)
from accounting.answers.preemption.bound import Ranked
from accounting.answers.preemption.ranking import rank
from accounting.pod import Container, Pod
from accounting.reference import preempt as reference
from accounting.reference.preempt import Found, Resident
from accounting.state import Snapshot
from tests.accounting.test_choice import Place, finished, node_pod, renamed
from tests.accounting.test_preempt_against_reference import random_case
from tests.builders import app, init, make_allocation, make_cache, make_device, make_node, make_pod

#: Clusters in `make test`; the long form takes GPU_EXTENDER_RANKINGS=5000.
CLUSTERS = int(os.environ.get("GPU_EXTENDER_RANKINGS", "60"))
SEED = int(os.environ.get("GPU_EXTENDER_SEED", "20260"))


class Asked:
    """A cluster, and what its table says of it."""

    def __init__(self, places: Sequence[Place]) -> None:
        cache = make_cache([each.node for each in places], [one.pod for each in places for one in each.residents])
        self.snapshot, self.table = cache.snapshot(), VictimTable()
        self.occupied: dict[int, Occupied] = {}
        self.searched: list[int] = []
        """The rows that a choice has looked at."""
        for each in places:
            row, positions = self.snapshot.rows[each.node.name], cache.positions(each.node.name)
            self.occupied[row] = Occupied(each.node.name, row, positions, tuple(map(node_pod, each.residents)))
            self.table.put(row, positions, self.occupied[row].pods)
        self._rows = np.array(sorted(self.occupied), np.intp)

    def ranked(self, pod: Pod, priority: int, allowed: Sequence[int]) -> dict[int, Ranked]:
        """All rows in their ranking."""
        steps = rank(self.snapshot, Preemptor(pod, priority), self.table, allowed, self._rows)
        return {each.row: each for each in steps if each is not None}

    def chosen(self, pod: Pod, priority: int) -> Chosen:
        """What is chosen."""
        steps = choose(self.snapshot, Preemptor(pod, priority), self._rows, self.table, self._look)
        outcome = finished(steps)
        assert isinstance(outcome, Chosen)
        return outcome

    def cheapest_of_all(self, pod: Pod, priority: int) -> tuple[Cost, str]:
        """The same by searching every node."""
        offers = [Offer(each) for each in self.occupied.values()]
        outcomes = preempt(self.snapshot, Preemptor(pod, priority), offers)
        found = zip(offers, outcomes, strict=True)
        return min((each.cost, offer.occupied.node) for offer, each in found if isinstance(each, Victims))

    def _look(self, rows: Sequence[int]) -> tuple[Snapshot, list[Offer]]:
        self.searched += rows
        return self.snapshot, [Offer(self.occupied[row]) for row in rows]


def test_no_bound_is_above_what_the_victims_cost() -> None:
    kinds = {"one": 0, "several": 0, "several, exact": 0}
    for number in range(CLUSTERS):
        random = Random(f"{SEED}/bounds/{number}")
        cases = [random_case(random) for _ in range(random.randint(2, 6))]
        places = [renamed(at, case.node, case.residents) for at, case in enumerate(cases)]
        pod, allowed = cases[0].pod, random.choice(((0, 1, 2), (0, 0, 0), (2, 2, 2)))
        asked = Asked(places)
        ranked = asked.ranked(pod, 5, allowed)
        for row, occupied in asked.occupied.items():
            place = next(each for each in places if each.node.name == occupied.node)
            expected = reference.preempt(place.node, place.residents, pod, 5, frozenset(), allowed)
            where = f"seed {SEED}, cluster {number}, node {occupied.node}"
            if expected == "wait":
                assert ranked[row].bound is None, where
            if not isinstance(expected, Found):
                continue
            cost = cost_of([each for each in occupied.pods if each.uid in expected.uids], allowed)
            bound = ranked[row].bound
            assert bound is None or not bound.is_above(cost), where
            several = len(expected.uids) > 1
            kinds["several" if several else "one"] += 1
            kinds["several, exact"] += several and bound is not None and (*bound[:4], *bound.freed[:4]) == cost[:8]
    if CLUSTERS >= 60:
        # Few of these pods are alike, so a bound that forgot what it could know would hardly ever be exact.
        assert kinds["one"] > 10 < kinds["several"] < 3 * kinds["several, exact"], f"seed {SEED}: {kinds}"


def one_on_each(name: str, memory: Sequence[int], sizes: Sequence[int], slots: int = 20) -> Place:
    """A node with cards of these sizes, and on each of them in turn a pod."""
    node = make_node(
        name, [make_device(f"GPU-{name}-{i}", index=i, memory=mib, slots=slots) for i, mib in enumerate(memory)]
    )
    residents = [
        Resident(
            make_pod(
                f"p-{name}-{at}",
                [app(size)],
                node=name,
                allocation=make_allocation([(f"GPU-{name}-{at % len(memory)}", size, 0)]),
            )
        )
        for at, size in enumerate(sizes)
    ]
    return Place(node, residents)


def two_cards(random: Random, name: str) -> Place:
    return one_on_each(name, (24, 24), [random.choice((16, 20)) for _ in range(2)])


def two_on_a_card(random: Random, name: str) -> Place:
    return one_on_each(name, (24, 24), [random.choice((8, 10, 12)) for _ in range(4)])


def four_cards(random: Random, name: str) -> Place:
    return one_on_each(name, (24,) * 6, [random.choice((14, 16, 20)) for _ in range(6)])


@pytest.mark.parametrize(
    "place, containers, number",
    [
        pytest.param(two_cards, [app(20), app(24)], 2, id="two containers, two cards"),
        pytest.param(two_cards, [app(18, count=2)], 2, id="one container, two cards"),
        pytest.param(two_cards, [init(24, count=2), app(4)], 2, id="an init, two cards"),
        pytest.param(two_on_a_card, [app(24)], 2, id="two pods of one card"),
        pytest.param(two_on_a_card, [app(4, cores=100)], 2, id="a card of its own"),
        pytest.param(four_cards, [app(12), app(16), app(20, count=2)], 4, id="four cards"),
    ],
)
def test_of_200_nodes_where_several_have_to_go_few_are_searched(
    place: Callable[[Random, str], Place], containers: list[Container], number: int
) -> None:
    random = Random(f"{SEED}/{number}")
    places = []
    for at in range(200):
        node, residents = place(random, f"n{at:03}")
        places.append(Place(node, [one._replace(started=random.randrange(10**6)) for one in residents]))
    asked, pod = Asked(places), make_pod("arriving", containers)
    outcome = asked.chosen(pod, 5)
    assert not outcome.limited
    assert len(outcome.victims.pods) == number
    assert len(asked.searched) <= 12
    assert (outcome.victims.cost, outcome.node) == asked.cheapest_of_all(pod, 5)
