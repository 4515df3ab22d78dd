"""Hold sets: cases S-01 to S-05, and that a set is never left spread or partly Lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.holders import Hold, HoldState, Room, VmiKey, full_pass

K = "k"
SETS = ("set-a", "set-b")


def holds(*nodes: str | None, set_id: str = "set-a", state: HoldState = HoldState.LOST) -> tuple[Hold, ...]:
    """One device per entry, Bound on that node; None: in the given state."""
    vmi = VmiKey("tenant", set_id)
    return tuple(Hold(set_id, vmi, K, 1, node, HoldState.BOUND if node is not None else state) for node in nodes)


def room(capacity: int = 8, **free: int) -> Room:
    return Room({(node, K): capacity for node in free}, {(node, K): units for node, units in free.items()})


def after(sets: dict[str, tuple[Hold, ...]], there: Room) -> dict[str, tuple[Hold, ...]]:
    now = dict(sets)
    for _ in full_pass(now, there, now.__setitem__):
        pass
    return now


def changed(sets: dict[str, tuple[Hold, ...]], there: Room) -> list[str]:
    now = dict(sets)
    return [key for key in full_pass(now, there, now.__setitem__) if key is not None]


def where(set_: tuple[Hold, ...]) -> list[str | None]:
    return [hold.node for hold in set_]


def test_s_01_a_pod_wants_all_of_its_devices_on_one_node() -> None:
    there = room(n1=2, n2=2)
    assert there.fullest(holds(None, None, None)) is None
    assert there.units == {("n1", K): 2, ("n2", K): 2}


@pytest.mark.parametrize(
    "free, expected",
    [
        pytest.param({"n1": 1, "n2": 3}, ["n1"] * 3, id="S-02-where-most-members-are"),
        pytest.param({"n1": 0, "n2": 3, "n3": 5}, ["n2"] * 3, id="S-03-the-fullest-with-room-for-all"),
        pytest.param({"n1": 0, "n2": 2}, [None] * 3, id="S-04-all-lost"),
    ],
)
def test_a_partly_lost_set_is_gathered(free: dict[str, int], expected: list[str | None]) -> None:
    there = room(**free)
    assert where(after({"set-a": holds("n1", "n1", None)}, there)["set-a"]) == expected


def test_s_04_the_node_has_its_units_back() -> None:
    there = room(n1=0, n2=2)
    set_ = after({"set-a": holds("n1", "n1", None)}, there)["set-a"]
    assert {hold.state for hold in set_} == {HoldState.LOST}
    assert there.units["n1", K] == 2


def test_s_05_lost_sets_go_before_new_ones() -> None:
    new = holds(None, None, set_id="set-a", state=HoldState.PENDING)
    lost = holds(None, None, set_id="set-b", state=HoldState.LOST)
    now = after({"set-a": new, "set-b": lost}, room(n1=0, n2=2))
    assert where(now["set-b"]) == ["n2", "n2"]
    assert now["set-a"] == new


def test_a_set_leaves_a_node_that_is_gone() -> None:
    assert where(after({"set-a": holds("gone", "gone")}, room(n1=3))["set-a"]) == ["n1", "n1"]


def test_a_set_leaves_a_node_that_has_promised_too_much() -> None:
    there = room(n1=-1, n2=2)
    assert where(after({"set-a": holds("n1", "n1")}, there)["set-a"]) == ["n2", "n2"]
    assert there.units == {("n1", K): 1, ("n2", K): 0}


def test_a_set_that_is_well_is_left_alone() -> None:
    assert changed({"set-a": holds("n1", "n1")}, room(n1=0, n2=8)) == []


members = st.lists(st.sampled_from(["n1", "n2", None]), min_size=1, max_size=4)


@given(
    st.tuples(members, members),
    st.sampled_from([HoldState.LOST, HoldState.PENDING]),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_a_pass_leaves_whole_sets_takes_nothing_twice_and_has_nothing_left_to_do(
    nodes: tuple[list[str | None], list[str | None]], state: HoldState, n1: int, n2: int
) -> None:
    sets = {name: holds(*each, set_id=name, state=state) for name, each in zip(SETS, nodes, strict=True)}
    there, capacity = room(n1=n1, n2=n2), {"n1": n1, "n2": n2}
    for set_ in sets.values():
        for hold in set_:
            if hold.node is not None:
                capacity[hold.node] += 1
    now = after(sets, there)
    for set_ in now.values():
        assert len({(hold.node, hold.state) for hold in set_}) == 1
        assert all((hold.node is not None) == (hold.state is HoldState.BOUND) for hold in set_)
    for node, units in capacity.items():
        held = sum(hold.node == node for set_ in now.values() for hold in set_)
        assert there.units.get((node, K), 0) == units - held >= 0
    assert changed(now, there) == []
