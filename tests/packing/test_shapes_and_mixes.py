"""What a pod looks like to the packing policies, and which workload is expected."""

import random

import pytest

from accounting.packing.mix import expected
from accounting.packing.shape import CardClass, Need, Shape, need_of, shape_of
from accounting.packing.workload import plan_of
from accounting.pod import Pod
from tests.builders import app, init, make_pod, sidecar
from tests.packing.builders import SOME_PODS, card_node, cluster_of

CARD = CardClass("T4", 1000, 100, 10)


@pytest.mark.parametrize(
    "pod,need",
    [
        (make_pod("a", [app(300)]), Need(1, 30)),
        (make_pod("a", [app(301)]), Need(1, 31)),
        (make_pod("a", [app(10)]), Need(1, 10)),  # one slot of ten
        (make_pod("a", [app(300, cores=50)]), Need(1, 50)),
        (make_pod("a", [app(percentage=40)]), Need(1, 40)),
        (make_pod("a", [app(cores=100)]), Need(1, 100)),
        (make_pod("a", [app(300, count=2)]), Need(2, 30)),
        (make_pod("a", [init(500), app(300)]), Need(1, 50)),
        (make_pod("a", [sidecar(200), init(500), app(300)]), Need(1, 70)),
        (make_pod("a", [app(600), app(600)]), Need(2, 60)),  # together 120 % of a card: two cards
        (make_pod("a", []), Need(0, 0)),
    ],
)
def test_need(pod: Pod, need: Need) -> None:
    assert need_of(shape_of(pod), CARD) == need


def test_cards_that_the_pod_excludes_serve_it_in_nothing() -> None:
    assert need_of(Shape(0, 1, use_types=(("p100",),), percentage=10), CARD) is None
    assert need_of(Shape(0, 1, nouse_types=(("t4",),), percentage=10), CARD) is None


def test_a_mix_does_not_depend_on_the_order() -> None:
    shapes = [shape_of(pod) for pod in SOME_PODS]
    mix = expected(shapes, 1000)
    random.Random(3).shuffle(shapes)
    assert expected(shapes, 1000) == mix


def test_rare_shapes_are_left_out_unless_their_demand_is_large() -> None:
    rare, large = Shape(7, 1, percentage=1, cores=1), Shape(9, 8, percentage=100, cores=100)
    shapes = [Shape(1, 1, percentage=10, cores=10)] * 100 + [rare, large]
    mix = {offer.shape: offer.typical for offer in expected(shapes, 1000)}
    assert mix == {Shape(1, 1, percentage=10, cores=10): True, large: False}


def test_nothing_seen_is_no_mix() -> None:
    assert expected([], 1000) == ()


def test_plan() -> None:
    cache = cluster_of([card_node("a", 4, cpu=32_000), card_node("b", 2), card_node("c", 2, model="P100")])
    plan = plan_of(cache.snapshot())
    assert [(card.type, cards) for card, cards in plan.classes] == [("P100", 2), ("T4", 6)]
    assert (plan.most_cards, plan.most_cpu_milli) == (4, 32_000)


def test_cards_of_another_vendor_serve_a_pod_in_nothing() -> None:
    assert need_of(Shape(0, 1, percentage=10), CARD._replace(vendor="other")) is None
    assert need_of(Shape(0, 1, percentage=10, vendor="other"), CARD._replace(vendor="other")) == Need(1, 10)
