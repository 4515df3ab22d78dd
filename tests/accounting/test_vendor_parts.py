"""Cards of two vendors on one node are judged apart: requests for one vendor never affect those for the other.

It exists because a pod is judged vendor by vendor. Invariant: the answers for both together follow from those for each
alone.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.answers.allocate import Placement, allocate
from accounting.answers.filter import filter_nodes
from accounting.demand import Demand
from accounting.node import Device, Node, tie_order
from accounting.pod import Allocation, Container, ContainerKind, DeviceRequest, Pod
from accounting.pod_record import record_pod
from accounting.selection import Selection
from accounting.state.cache import Cache
from accounting.vendor_part import merged, part_of, rows_of
from tests.builders import make_pod
from tests.strategies import devices, requests

ONE, TWO = "NVIDIA", "DCU"
_KINDS = st.lists(st.sampled_from(ContainerKind), min_size=1, max_size=4)


@st.composite
def cards(draw: st.DrawFn, vendor: str) -> list[Device]:
    uuids = [f"{vendor}-{at}" for at in range(draw(st.integers(1, 3)))]
    return [replace(draw(devices(uuid)), vendor=vendor) for uuid in uuids]


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    """A pod that asks for cards of both vendors, each in some of its containers."""
    containers = []
    for kind in sorted(draw(_KINDS), key=lambda kind: kind is ContainerKind.APP):
        asked = [draw(requests())._replace(vendor=vendor) for vendor in (ONE, TWO) if draw(st.booleans())]
        containers.append(Container("", kind, asked[0] if asked else None, tuple(asked[1:])))
    containers.append(
        Container("", ContainerKind.APP, DeviceRequest(1, 1, 0, 0), (DeviceRequest(1, 1, 0, 0, vendor=TWO),))
    )
    pod = make_pod(name, containers)
    return pod._replace(further_selections=(Selection(vendor=TWO),))


def cluster(*nodes: Node) -> Cache:
    cache = Cache((ONE, TWO))
    for node in nodes:
        cache.add_node(node)
    return cache


def place(cache: Cache, pod: Pod) -> Placement | None:
    snapshot = cache.snapshot()
    uuids = {position: uuid for uuid, position in cache.positions("n").items()}
    placement = allocate(snapshot, pod, snapshot.rows["n"], uuids)
    verdict = filter_nodes(snapshot, pod, snapshot.rows_of(["n"]))
    assert bool(verdict.feasible[0]) == (placement is not None)
    return placement


@settings(deadline=None, max_examples=100)
@given(cards(ONE), cards(TWO), st.integers(1, 3), st.data())
def test_both_together_are_each_alone(one: list[Device], two: list[Device], number: int, data: st.DataObject) -> None:
    both = cluster(Node("n", tuple(sorted([*one, *two], key=tie_order))))
    alone = {key: cluster(Node("n", tuple(sorted(own, key=tie_order)))) for key, own in ((ONE, one), (TWO, two))}
    for at in range(number):
        pod = data.draw(pods(f"p{at}"))
        assert [part.selection.vendor for part in Demand.of(pod).parts] == [ONE, TWO]
        apart = {key: place(cache, part_of(pod, key)) for key, cache in alone.items()}
        together = place(both, pod)
        fits = [placement.allocation for placement in apart.values() if placement is not None]
        assert (together is not None) == (len(fits) == 2)
        if together is None:
            continue
        assert together.allocation == merged(fits)
        bound = pod._replace(node="n", allocation=together.allocation)
        both.add_pod(record_pod(bound))
        for key, cache in alone.items():
            own: Allocation = rows_of(together.allocation, key)
            cache.add_pod(record_pod(part_of(bound, key)._replace(allocation=own)))
            assert cache.used("default", vendor=key) == both.used("default", vendor=key)
