"""Who has whole devices: the holders of every node and key add up to what is used there.

They exist because a person frees devices by what this names. They must not know how units are counted. Invariant:
`RawUnits`, which counts event by event, says the same sums.
"""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from accounting.answers import RawReport, Reports, UnitHolder, raw_reports, raw_reports_in_steps
from accounting.holders import (
    Hold,
    HoldState,
    RawDevices,
    RawRequest,
    VirtualMachineInstance,
    VmiKey,
    overcommitted,
)

KEY, OTHER = "example.com/a", "example.com/b"
NODES = ("n1", "n2")
units = st.lists(
    st.tuples(st.sampled_from([KEY, OTHER]), st.integers(1, 3)), unique_by=lambda each: each[0], max_size=2
)
pods = st.tuples(st.just("pod"), st.sampled_from("abc"), st.sampled_from([*NODES, None]), units)
machines = st.tuples(
    st.just("vmi"), st.sampled_from("xy"), st.sampled_from([*NODES, None]), units, st.frozensets(st.sampled_from("abc"))
)


def vmi(name: str, node: str | None, held: list[tuple[str, int]], listed: frozenset[str]) -> VirtualMachineInstance:
    return VirtualMachineInstance("ns", name, f"uid-{name}", node, listed, tuple(sorted(held)))


@given(st.lists(st.one_of(pods, machines), max_size=10))
def test_the_holders_add_up_to_what_is_used(story: list[Any]) -> None:
    devices = RawDevices()
    devices.put_node("n1", {KEY: 4})
    for kind, name, node, held, *listed in story:
        if kind == "pod":
            devices.put_pod(RawRequest(name, "ns", name, tuple(sorted(held)), node))
        else:
            devices.put_vmi(vmi(name, node, held, *listed))
    found = raw_reports(devices)
    sums = {(each.node, each.key): each.used for own in found.values() for each in own}
    assert {place: used for place, used in sums.items() if used} == dict(devices.units.on_nodes())
    assert ("n1", KEY) in sums
    have = {(each.node, each.key): each.allocatable for own in found.values() for each in own}
    over = {(each.node, each.key): each for each in overcommitted(devices)}
    assert over.keys() == {place for place, used in sums.items() if used > have[place]}
    for place, each in over.items():
        assert sum(int(user.rpartition(" ")[2]) for user in each.users) == each.used == sums[place]
    for node in NODES:
        assert raw_reports(devices, node).get(node) == found.get(node)


def test_each_holder_has_its_kind_and_name() -> None:
    devices = RawDevices()
    devices.put_node("n1", {KEY: 4})
    devices.put_vmi(vmi("x", "n1", [(KEY, 2)], frozenset({"launcher"})))
    devices.put_pod(RawRequest("launcher", "ns", "launcher", ((KEY, 3),), "n1"))
    devices.put_pod(RawRequest("other", "ns", "other", ((KEY, 1),), "n1"))
    devices.put_holds(VmiKey("ns", "y"), [Hold("set", VmiKey("ns", "y"), KEY, 1, "n1", HoldState.BOUND, "y-0")])
    assert raw_reports(devices) == {
        "n1": (
            RawReport(
                *("n1", KEY, 4, 5),
                (
                    UnitHolder("hold", "ns/y-0", 1),
                    UnitHolder("pod", "ns/launcher", 1),
                    UnitHolder("pod", "ns/other", 1),
                    UnitHolder("vmi", "ns/x", 2),
                ),
            ),
        )
    }
    assert raw_reports(devices)["n1"][0].free == -1


def test_what_changes_between_two_steps_is_in_it() -> None:
    devices = RawDevices()
    devices.put_node("n1", {KEY: 4})
    for number in range(1200):
        devices.put_pod(RawRequest(f"p{number}", "ns", f"p{number}", ((KEY, 1),), "n1"))
    steps = raw_reports_in_steps(devices)
    next(steps)
    devices.remove_pod("p0")
    found: list[Reports] = []

    def taken() -> Iterator[None]:
        found.append((yield from steps))

    assert len(list(taken())) > 2
    assert found == [raw_reports(devices)]
    (found_now,) = found
    assert found_now["n1"][0].used == 1199
