"""Small builders for the tests of accounting: cases from files, containers, pods, nodes, and a cluster to query.

They must not compute anything that is under test. Invariant: what they build is what the arguments say.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accounting.answers.allocate import Placement, allocate
from accounting.answers.filter import filter_nodes
from accounting.answers.verdicts import Verdict
from accounting.container_resources import ContainerResources, container_request
from accounting.holdings import DeviceUse, Total
from accounting.node import Device, Node
from accounting.pod import Allocation, Container, ContainerKind, DeviceRequest, Pod, UnreadableAllocation
from accounting.pod_record import PodRecord, State, record_pod
from accounting.policy import Policies, parse_card_policy
from accounting.selection import Selection, parse_bool, parse_list, parse_types
from accounting.state.cache import Cache
from accounting.status import CODES, Code, Invalid
from accounting.vendor import NVIDIA, Vendor
from tests.builders import make_allocation, make_node, make_pod, uuids_on

CASES = Path(__file__).resolve().parent.parent / "data" / "cases"
#: Short resource name in the cases -> full name.
SHORT_NAMES = {
    "gpu": NVIDIA.count_resource,
    "gpumem": NVIDIA.memory_resource,
    "gpumem-percentage": NVIDIA.memory_percentage_resource,
    "gpucores": NVIDIA.cores_resource,
}
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def read_cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of a file in tests/data/cases."""
    text = (CASES / name).read_text(encoding="utf-8")
    return list(json.loads(text)["cases"])


def words(text: str) -> str:
    """Return a text as words, for a test id."""
    return " ".join(text.replace("_", " ").replace("-", " ").split())


def long_names(resources: Mapping[str, object]) -> dict[str, object]:
    """Return resources with their full names."""
    return {SHORT_NAMES.get(name, name): value for name, value in resources.items()}


def request_of(
    limits: Mapping[str, object], requests: Mapping[str, object] | None = None, vendor: Vendor = NVIDIA
) -> tuple[DeviceRequest | None, tuple[Invalid, ...]]:
    """Read a container's resources, given with short names, as the admission of a pod does."""
    resources = ContainerResources(long_names(limits), long_names(requests or {}))
    return container_request(resources, vendor, "spec.containers[main].resources")


def asking(kind: str | ContainerKind, limits: Mapping[str, object] | None, name: str = "main") -> Container:
    """Return a container with these limits; without limits it asks for nothing."""
    request, invalid = request_of(limits or {})
    assert not invalid
    return Container(name, ContainerKind(kind), request)


def memory(kind: str | ContainerKind, mebibytes: int, cores: int = 0, count: int = 1) -> Container:
    """Return a container that asks for memory (and cores) on `count` cards."""
    return Container("main", ContainerKind(kind), DeviceRequest(count, mebibytes, 0, cores))


def rows(*containers: Sequence[tuple[str, int, int]]) -> Allocation:
    """Return an allocation: per container its (uuid, memory, cores)."""
    return make_allocation(*containers)


def pod(
    *containers: Container,
    name: str = "p",
    node: str | None = None,
    allocation: Allocation | UnreadableAllocation | None = None,
    inits_over: bool | None = None,
    terminal: bool = False,
    annotations: Mapping[str, str] | None = None,
    invalid: tuple[Invalid, ...] = (),
) -> Pod:
    """Return a pod; its inits are over if it has none."""
    notes = annotations or {}
    return make_pod(
        name,
        containers,
        namespace="team",
        node=node,
        terminal=terminal,
        inits_over=inits_over,
        allocation=allocation,
        invalid=invalid,
        selection=_selection(notes),
        policies=_policies(notes),
    )


def _selection(notes: Mapping[str, str]) -> Selection:
    return Selection(
        use_uuids=frozenset(parse_list(notes.get(NVIDIA.use_uuid_annotation, ""))),
        nouse_uuids=frozenset(parse_list(notes.get(NVIDIA.nouse_uuid_annotation, ""))),
        use_types=parse_types(notes.get(NVIDIA.use_type_annotation, "")),
        nouse_types=parse_types(notes.get(NVIDIA.nouse_type_annotation, "")),
        modes=notes.get(NVIDIA.mode_annotation, ""),
        numa_bind=bool(parse_bool(notes.get(NVIDIA.numa_bind_annotation, "false"))),
    )


def _policies(notes: Mapping[str, str]) -> Policies:
    policy = notes.get("hami.io/gpu-scheduler-policy")
    return Policies() if policy is None else Policies(card=parse_card_policy(policy))


def card(uuid: str, mebibytes: int = 24_000, *, index: int = 0, **more: Any) -> Device:  # noqa: ANN401 - Device's fields
    """Return a healthy card of 10 slots and 100 percent."""
    return replace(Device(uuid, index, slots=10, memory=mebibytes, cores=100), **more)


def node(name: str, *devices: Device, count_allocatable: int | None = None) -> Node:
    """Return a node with these cards, in tie order."""
    return make_node(name, devices, count_allocatable=count_allocatable)


def holder(node_name: str, uses: Iterable[DeviceUse], *, name: str = "holder", count: int = 0) -> PodRecord:
    """Return the record of a running pod that holds exactly this."""
    return PodRecord(
        uid=f"uid-{name}",
        namespace="other",
        name=name,
        node=node_name,
        state=State.STEADY,
        steady=tuple(uses),
        peak=tuple(uses),
        total_peak=Total(count),
        total_steady=Total(count),
        readable=True,
    )


class Cluster:
    """A cache with nodes and pods, and the questions of tests."""

    def __init__(self, *nodes: Node, pods: Iterable[PodRecord] = (), vendors: Sequence[str] = (NVIDIA.key,)) -> None:
        self.cache = Cache(vendors)
        for each in nodes:
            self.cache.add_node(each)
        for record in pods:
            self.cache.add_pod(record)

    def verdict(self, asked: Pod, *names: str) -> Verdict:
        """Return filter's verdict on the named nodes."""
        snapshot = self.cache.snapshot()
        return filter_nodes(snapshot, asked, snapshot.rows_of(names))

    def refusal(self, asked: Pod, name: str) -> Code | None:
        """Return why a node does not take the pod; None if it does."""
        verdict = self.verdict(asked, name)
        return None if verdict.feasible[0] else CODES[int(verdict.codes[0])]

    def place(self, asked: Pod, name: str) -> Placement | None:
        """Return the cards that the pod gets on a node; filter must say the same."""
        snapshot = self.cache.snapshot()
        placement = allocate(snapshot, asked, snapshot.rows[name], uuids_on(self.cache, name))
        assert (placement is not None) == bool(np.all(self.verdict(asked, name).feasible))
        return placement

    def bind(self, asked: Pod, name: str) -> Pod:
        """Place the pod, record it, and return it as it then is."""
        placement = self.place(asked, name)
        assert placement is not None
        bound = asked._replace(node=name, allocation=placement.allocation)
        self.cache.add_pod(record_pod(bound))
        return bound

    def held(self, uuid: str, name: str = "n") -> tuple[int, int, int]:
        """Return what is requested of a card: slots, memory, cores."""
        snapshot = self.cache.snapshot()
        requested, cell = snapshot.requested, (self.cache.positions(name)[uuid], snapshot.rows[name])
        return int(requested.slots[cell]), int(requested.memory[cell]), int(requested.cores[cell])


def numbers(uses: Iterable[DeviceUse]) -> dict[str, tuple[int, int, int]]:
    """Return UUID -> slots, memory, cores."""
    return {use.uuid: (use.slots, use.memory, use.cores) for use in uses}


def chosen(placement: Placement | None) -> list[list[str]]:
    """Return the UUIDs of every container's row."""
    assert placement is not None
    return [[row.uuid for row in own] for own in placement.allocation]
