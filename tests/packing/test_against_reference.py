"""The fast kernels against the slow reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.packing import fgd, table
from accounting.packing.mix import Offer
from accounting.packing.offers import Offers, offers_for
from accounting.packing.shape import UNITS, CardClass, Need, Shape
from accounting.packing.state import NodeState, state_after
from accounting.packing.table import ETA, ONE, Arrival
from accounting.reference import packing as reference

_CARD = CardClass("T4", 1000, 100, 100)
_units = st.integers(1, 100)


@st.composite
def _shapes(draw: st.DrawFn) -> Shape:
    cards = draw(st.sampled_from([0, 1, 1, 1, 2, 4]))
    percent = draw(st.one_of(st.just(100), _units)) if cards else 0
    return Shape(draw(st.sampled_from([0, 500, 1000, 3000])), cards, 0, percent, percent)


_mixes = st.dictionaries(_shapes(), st.integers(1, 9), min_size=1, max_size=6).map(
    lambda found: tuple(Offer(shape, weight, typical=True) for shape, weight in sorted(found.items()))
)


@st.composite
def _nodes(draw: st.DrawFn) -> list[reference.Node]:
    cards = draw(st.integers(1, 5))
    free = st.lists(st.one_of(st.sampled_from([0, 100]), _units), min_size=cards, max_size=cards)
    load = st.lists(st.integers(0, 3), min_size=cards, max_size=cards)
    one = st.builds(reference.Node, free, load, st.integers(0, 9000))
    return draw(st.lists(one, min_size=1, max_size=4))


def _state(nodes: list[reference.Node]) -> NodeState:
    return NodeState(
        np.array([node.units for node in nodes], np.int64).T.copy(),
        np.array([node.load for node in nodes], np.int64).T.copy(),
        np.array([node.cpu_milli for node in nodes], np.int64),
        np.zeros(len(nodes), np.bool_),
    )


def _kinds(offers: Offers) -> list[tuple[int, int, int, int]]:
    return [(k.cpu_milli, k.cards, k.units, int(w)) for k, w in zip(offers.kinds, offers.weights, strict=True)]


@given(_mixes, _nodes())
def test_places(mix: tuple[Offer, ...], nodes: list[reference.Node]) -> None:
    offers, state = offers_for(mix, _CARD), _state(nodes)
    slow = [[reference.places(node, cpu, cards, units) for node in nodes] for cpu, cards, units, _ in _kinds(offers)]
    found = offers.places(state.units, state.cpu_milli)
    for row, (_, cards, _, _), slow_row in zip(found.tolist(), _kinds(offers), slow, strict=True):
        assert not cards or row == slow_row


@given(_nodes(), st.integers(0, 4), _units, st.integers(0, 9000))
def test_state_after(nodes: list[reference.Node], cards: int, units: int, cpu_milli: int) -> None:
    state = state_after(_state(nodes), Need(cards, units), cpu_milli)
    slow = [reference.after(node, cpu_milli, cards, units) for node in nodes]
    assert state.units.T.tolist() == [node.units for node in slow]
    assert state.cpu_milli.tolist() == [node.cpu_milli for node in slow]


@given(_mixes, _nodes(), st.integers(0, 2))
def test_fgd(mix: tuple[Offer, ...], nodes: list[reference.Node], cards: int) -> None:
    offers, state, need = offers_for(mix, _CARD), _state(nodes), Need(cards, 30)
    before = fgd.fragmentation(state, offers)
    assert before.tolist() == [reference.unusable(node, _kinds(offers), 0) for node in nodes]
    scores = fgd.fgd_scores(state, before, need, 1000, offers)
    for node, score in zip(nodes, scores.tolist(), strict=True):
        later = reference.after(node, 1000, cards, 30)
        shrink = reference.unusable(node, _kinds(offers), 0) - reference.unusable(later, _kinds(offers), 0)
        milli = 10 * shrink / offers.total
        # Close to a step of the score the two roundings may differ by one.
        around = {reference.fgd_score(milli - 1e-6), reference.fgd_score(milli), reference.fgd_score(milli + 1e-6)}
        assert score in around


@settings(max_examples=12)
@given(
    st.lists(
        st.one_of(
            st.builds(Arrival, st.integers(0, 2), st.just(1), _units, st.floats(0.01, 0.4)),
            st.builds(Arrival, st.integers(1, 2), st.just(0), st.just(0), st.floats(0.01, 0.4)),
            st.builds(Arrival, st.integers(0, 2), st.just(2), st.just(100), st.floats(0.01, 0.4)),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_value_table(arrivals: list[Arrival]) -> None:
    # The reference is slow: few states and offers.
    steps, ahead = table.CPU_STEPS, table.OFFERS
    table.CPU_STEPS, table.OFFERS = 2, 3
    try:
        fast = table.build_table(arrivals, 2)
    finally:
        table.CPU_STEPS, table.OFFERS = steps, ahead
    slow = reference.value_table(sorted(arrivals), 2, 2, 3, ETA, table.CARD_SHARE)
    for (cpu, free, partial), value in slow.items():
        if cpu < 0:
            lone = partial * (ONE // UNITS) - int(fast.lone_waste[partial])
            assert lone / ONE == pytest.approx(value, abs=1e-8)
        else:
            assert fast.node[cpu, free, partial] / ONE == pytest.approx(value, abs=1e-8)
