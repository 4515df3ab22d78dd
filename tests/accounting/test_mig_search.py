"""The search on nodes with cards in MIG mode: which ways it skips, and where it ends.

It exists because skipped ways must not change which placement is found. Invariants: the placement is the first one of
the plainest search, `mig_reference`; both accept the same pods; a search that ends early says so.
"""

from dataclasses import replace
from itertools import product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from accounting.demand import Demand
from accounting.mig import fit as mig_fit
from accounting.mig.budget import Most
from accounting.mig.fit import place_on_columns, place_on_one
from accounting.mig.placements import offers_of
from accounting.mig_profiles import EVERY_SLICE, MigInstance, MigLayout, MigProfile, options
from accounting.node import Device, Node
from accounting.pod import Container, ContainerKind, DeviceRequest, FurtherRow, Pod
from accounting.pod_record import record_pod
from accounting.status import CODES, Code
from tests.accounting.case_builders import APP, INIT, SIDECAR, Cluster, card, memory, node, pod
from tests.accounting.mig_reference import Reference, TooManyChoices, most_instances
from tests.accounting.test_mig import A100, SMALL, mig_card

#: Larger profiles at the same places, with an instance that has two of them to choose from.
OTHER: MigLayout = (
    MigProfile("1g", 8, 20, 1, ((0, 1), (1, 1), (2, 1), (3, 1))),
    MigProfile("1g.more", 9, 15, 2, ((0, 2), (2, 2))),
    MigProfile("2g", 15, 40, 2, ((0, 2), (2, 2))),
    MigProfile("4g", 30, 100, 4, ((0, 4),)),
)
POLICIES = ("spread", "binpack", "mutex", "numa,binpack", "binpack,mutex", "spread,numa")


@pytest.mark.parametrize("layout", [A100, SMALL, OTHER], ids=["A100", "small", "other"])
@pytest.mark.parametrize("asked", [(0, 0), (1, 0), (9, 20), (9000, 0), (99_999, 0)], ids=str)
def test_what_is_kept_of_a_layout_is_what_it_offers(layout: MigLayout, asked: tuple[int, int]) -> None:
    offers = offers_of(layout, *asked)
    for free in range(EVERY_SLICE + 1):
        every = options(layout, free, *asked)
        assert [(each.instance, each.memory, each.cores) for each in offers.fitting(free)] == [
            tuple(one) for one in every
        ]
        assert offers.most_rows(free) == most_instances(layout, free, *asked)
        least = (min(each.memory for each in every), min(each.cores for each in every)) if every else (0, 0)
        assert offers.least(free) == least


# -- against the plainest search ---------------------------------------------------------------------------------------


@st.composite
def devices(draw: st.DrawFn) -> tuple[Device, ...]:
    def one(at: int) -> Device:
        layout = draw(st.sampled_from((SMALL, SMALL, OTHER, ())))
        numa = draw(st.integers(0, 1))
        if not layout:
            return card(f"GPU-{at}", draw(st.sampled_from((10, 20))), index=at, numa=numa, slots=2, mode="hami-core")
        slots = draw(st.sampled_from((2, 4, 7)))
        return replace(mig_card(f"GPU-{at}", index=at, layout=layout), slots=slots, memory=40, numa=numa)

    return tuple(one(at) for at in range(draw(st.integers(1, 3))))


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    kinds = draw(st.lists(st.sampled_from((INIT, SIDECAR, APP, APP)), min_size=1, max_size=4))
    sizes = draw(st.lists(st.sampled_from(((4, 0), (5, 0), (9, 0), (12, 0), (0, 25))), min_size=1, max_size=2))
    containers = [
        Container(
            "",
            kind,
            DeviceRequest(
                draw(st.integers(1, 2)), *draw(st.sampled_from(sizes)), draw(st.sampled_from((0, 0, 20, 100)))
            ),
        )
        for kind in sorted(kinds, key=lambda kind: kind is APP)
    ]
    notes = {"hami.io/gpu-scheduler-policy": draw(st.sampled_from(POLICIES))}
    notes["nvidia.com/numa-bind"] = draw(st.sampled_from(("false", "false", "true")))
    return pod(*containers, annotations=notes)


limits = st.none() | st.tuples(st.none() | st.integers(0, 60), st.none() | st.integers(0, 200))


@settings(deadline=None, max_examples=150)
@given(st.lists(devices(), min_size=1, max_size=3), pods(), limits, st.sets(st.integers(0, 2), max_size=2))
def test_the_placement_is_the_first_one_of_the_plainest_search(
    nodes: list[tuple[Device, ...]], asked: Pod, most: Most | None, taken: set[int]
) -> None:
    cluster = Cluster(*(node(f"n{number}", *cards) for number, cards in enumerate(nodes)))
    for at in sorted(taken) if nodes[0][0].layout else ():
        row = FurtherRow.of("GPU-0", 5, 15, "NVIDIA", MigInstance("1g", at, 1))
        cluster.cache.add_pod(record_pod(pod(memory(APP, 4), name=f"t{at}", node="n0", allocation=((row,),))))
    snapshot = cluster.cache.snapshot()
    rows = snapshot.rows_of([f"n{number}" for number in range(len(nodes))])
    # Very few of these questions need more steps than there are, and the reference has no such bound.
    with mock.patch.object(mig_fit, "STEPS", 16 * mig_fit.STEPS):
        searched = place_on_columns(snapshot, Demand.of(asked), snapshot, np.ones(snapshot.columns, np.bool_), most)
    assert not searched.limited.any()
    for row_number, cards in zip(rows.tolist(), nodes, strict=True):
        view = snapshot.take(np.array([row_number]))
        in_mig = any(each.layout for each in cards)
        try:
            first = Reference(view, asked, snapshot).first(most) if in_mig else None
            anywhere = in_mig and Reference(view, asked, snapshot).first(None) is not None
        except TooManyChoices:
            # hypothesis makes up another question in its place.
            reject()
        with mock.patch.object(mig_fit, "STEPS", 16 * mig_fit.STEPS):
            assert place_on_one(view, Demand.of(asked), snapshot, most) == first
        assert searched.feasible[row_number] == (first is not None)
        assert searched.over[row_number] == (first is None and anywhere)


# -- what needs few steps ----------------------------------------------------------------------------------------------


def full_node(name: str, cards: int = 4, layout: MigLayout = A100) -> Node:
    return node(name, *(mig_card(f"{name}-{at}", index=at, layout=layout) for at in range(cards)))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_one_row_too_many_is_told_without_a_step(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig_fit, "STEPS", 0)
    cluster = Cluster(full_node("n"))
    asked = pod(*(memory(APP, 9000, count=count) for _ in range(12 // count)), memory(APP, 4000, count=4))
    assert cluster.refusal(pod(*asked.containers, memory(APP, 9000)), "n") is Code.INSUFFICIENT_MEMORY


#: Two of a kind fit on a card, or one of each. Neither can stand in for the other, so sums do not decide.
KNOTS: MigLayout = (
    MigProfile("wide", 20, 10, 2, ((0, 2), (2, 2))),
    MigProfile("fast", 5, 50, 2, ((1, 2), (3, 2))),
)


def knotted(wide: int, fast: int, kinds: tuple[ContainerKind, ...] = (APP,), policy: str = "spread") -> Pod:
    """A pod with this many containers for each of the two."""
    asks = [(20, 0)] * wide + [(1, 50)] * fast
    containers = [memory(kinds[at % len(kinds)], mib, cores) for at, (mib, cores) in enumerate(asks)]
    containers.sort(key=lambda container: container.kind is APP)
    return pod(*containers, annotations={"hami.io/gpu-scheduler-policy": policy})


@pytest.mark.parametrize("kinds", [(APP,), (SIDECAR, APP), (INIT, SIDECAR, APP)], ids=str)
def test_alike_containers_and_cards_are_not_tried_in_every_order(kinds: tuple[ContainerKind, ...]) -> None:
    # The plainest search would try millions of orders here.
    cluster = Cluster(full_node("n", 6, KNOTS))
    assert cluster.refusal(knotted(6, 6, kinds), "n") is None
    assert cluster.refusal(knotted(6, 7, kinds), "n") is Code.INSUFFICIENT_MEMORY


# -- where it ends -----------------------------------------------------------------------------------------------------


def test_a_search_that_ends_early_is_no_no(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(full_node("n", 2, KNOTS))
    assert cluster.refusal(knotted(2, 3), "n") is Code.INSUFFICIENT_MEMORY
    monkeypatch.setattr(mig_fit, "STEPS", 3)
    verdict = cluster.verdict(knotted(2, 3), "n")
    assert cluster.refusal(knotted(2, 3), "n") is Code.SEARCH_LIMIT
    assert not verdict.unresolvable[0]


def test_some_questions_are_beyond_the_steps_that_there_are() -> None:
    # All cards differ, so that none stands for another.
    layouts = [(*KNOTS, MigProfile("other", 1, 1 + at, 1, ((5, 1),))) for at in range(12)]
    cluster = Cluster(node("n", *(mig_card(f"GPU-{at}", index=at, layout=each) for at, each in enumerate(layouts))))
    assert cluster.refusal(knotted(12, 13), "n") is Code.SEARCH_LIMIT
    assert cluster.refusal(knotted(12, 12), "n") is None


def test_a_node_that_needs_many_steps_leaves_some_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig_fit, "STEPS", 150)
    asked = knotted(4, 5, (SIDECAR, APP))
    hard, easy = full_node("hard", 4, KNOTS), full_node("easy", 6, KNOTS)
    for nodes in ((hard, easy), (easy, hard)):
        cluster = Cluster(*nodes)
        verdict = cluster.verdict(asked, "hard", "easy")
        assert verdict.feasible.tolist() == [False, True]
        assert CODES[int(verdict.codes[0])] is Code.SEARCH_LIMIT


@pytest.mark.parametrize("steps", range(1, 40, 3))
def test_bind_finds_cards_wherever_filter_says_yes(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mig_fit, "STEPS", steps)
    names = [f"n{number}" for number in range(9)]
    # The nodes differ, so that the search asks what single cards can do.
    layouts = [(*KNOTS, MigProfile("other", 1, 1 + at, 1, ((5, 1),))) for at in range(9)]
    cluster = Cluster(*(full_node(name, 1 + at % 3, layouts[at]) for at, name in enumerate(names)))
    for policy, wide, fast in product(("spread", "binpack"), range(3), range(3)):
        asked = knotted(wide, fast, policy=policy)
        verdict = cluster.verdict(asked, *names)
        snapshot = cluster.cache.snapshot()
        for name, fits in zip(names, verdict.feasible.tolist(), strict=True):
            if fits and asked.containers:
                assert (
                    place_on_one(snapshot.take(snapshot.rows_of([name])), Demand.of(asked), snapshot, None) is not None
                )
