"""A bound pod whose allocation is edited holds the larger of both readings, per card and dimension.

It exists because whoever may write annotations must not be able to make a card look free. It must not know how a record
is made. Invariants: neither reading takes anything from the other, and the order of the edits does not matter.
"""

from hypothesis import given
from hypothesis import strategies as st

from accounting.holdings import DeviceUse
from accounting.pod import Allocation, Container, Pod
from accounting.pod_record import PodRecord, record_pod
from accounting.status import ProblemCode
from tests.builders import app, init, make_allocation, make_pod, sidecar

CONTAINERS = (sidecar(1), init(1), app(1))
_ROW = st.tuples(st.sampled_from(("GPU-a", "GPU-b", "GPU-c")), st.integers(0, 9), st.sampled_from((0, 30, 100)))


def _rows(containers: int) -> st.SearchStrategy[Allocation]:
    rows = [st.lists(_ROW, max_size=2, unique_by=lambda row: row[0]) for _ in range(containers)]
    return st.tuples(*rows).map(lambda drawn: make_allocation(*drawn))


@st.composite
def readings(draw: st.DrawFn) -> tuple[tuple[Container, ...], list[Allocation]]:
    """Containers, mostly with an init, and three readings of what they have been given."""
    containers = CONTAINERS[draw(st.sampled_from((0, 0, 2))) :]
    return containers, [draw(_rows(len(containers))) for _ in range(3)]


def record(containers: tuple[Container, ...], allocation: Allocation) -> PodRecord:
    pod: Pod = make_pod("p", containers, node="n1", allocation=allocation)
    return record_pod(pod)


def larger(*readings: tuple[DeviceUse, ...]) -> dict[str, tuple[int, ...]]:
    """Return per card the largest number of each kind, worked out one card after another."""
    uuids = {use.uuid for uses in readings for use in uses}
    of = {uuid: [use[1:] for uses in readings for use in uses if use.uuid == uuid] for uuid in uuids}
    return {uuid: tuple(map(max, zip(*uses, strict=True))) for uuid, uses in of.items()}


@given(readings())
def test_the_larger_of_all_readings_counts(drawn: tuple[tuple[Container, ...], list[Allocation]]) -> None:
    containers, allocations = drawn
    first, second, third = (record(containers, allocation) for allocation in allocations)
    found = third.edited_after(second.edited_after(first))
    for name in ("peak", "steady"):
        uses = getattr(found, name)
        assert {use.uuid: tuple(use[1:]) for use in uses} == larger(*(getattr(x, name) for x in (first, second, third)))
        assert [use.uuid for use in uses] == sorted(use.uuid for use in uses)
    for name in ("total_peak", "total_steady"):
        totals = [getattr(each, name) for each in (first, second, third)]
        assert tuple(getattr(found, name)) == tuple(map(max, zip(*totals, strict=True)))
    assert found.edited == (len({(each.peak, each.steady) for each in (first, second, third)}) > 1)
    assert found._replace(problem=None) == first.edited_after(second.edited_after(third))._replace(problem=None)


def test_an_edit_is_a_problem_for_as_long_as_the_process_lives() -> None:
    first = record((app(1),), make_allocation([("GPU-a", 5, 0)]))
    assert first.edited_after(first) is first
    other = record((app(1),), make_allocation([("GPU-b", 5, 0)]))
    edited = first.edited_after(other)
    assert edited.problem is not None
    assert edited.problem.code is ProblemCode.UNDECODABLE_ALLOCATION
    again = first.edited_after(edited)
    assert again.edited
    assert again.peak == edited.peak
