"""Finds by OR-Tools' CP-SAT whether a placement exists, for pods and nodes that are too large to try everything.

It exists for the soak; it needs the extra `oracle`. It must not share anything with the fast code or with the other
oracle but the values of a node and a pod. Invariant: an answer is proven; a solver that gives up raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ortools.sat.python import cp_model

from accounting.holdings import DeviceUse
from accounting.node import Device, Node
from accounting.pod import ContainerKind, DeviceRequest, Pod

_SECONDS = 30.0


def exists(node: Node, uses: Sequence[DeviceUse], pod: Pod) -> bool:
    """Ask the solver. Raises RuntimeError if it does not know after 30 seconds."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = _SECONDS
    solver.parameters.cp_model_presolve = False
    status = solver.solve(_Model(node, uses, pod).model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return True
    if status == cp_model.INFEASIBLE:
        return False
    raise RuntimeError(f"undecided after {_SECONDS:.0f} s: {solver.status_name(status)}")


class _Model:
    """One boolean per container and card: the container has a row there."""

    def __init__(self, node: Node, uses: Sequence[DeviceUse], pod: Pod) -> None:
        self.model = cp_model.CpModel()
        self._pod = pod
        self._held = {use.uuid: use for use in uses}
        self._asks = {
            place: container.request for place, container in enumerate(pod.containers) if container.request is not None
        }
        self._rows: dict[tuple[int, str], Any] = {
            (place, device.uuid): self.model.new_bool_var(f"{place} on {device.uuid}")
            for place in self._asks
            for device in node.devices
        }
        for place, request in self._asks.items():
            self.model.add(sum(self._rows[place, device.uuid] for device in node.devices) == request.count)
            if pod.selection.numa_bind or node.single_numa:
                self._one_numa(place, node)
        for device in node.devices:
            self._card(device)

    def _one_numa(self, place: int, node: Node) -> None:
        groups = {numa: self.model.new_bool_var(f"{place} in {numa}") for numa in {each.numa for each in node.devices}}
        self.model.add_exactly_one(groups.values())
        for device in node.devices:
            self.model.add_implication(self._rows[place, device.uuid], groups[device.numa])

    def _card(self, device: Device) -> None:
        """Add the rules of one card, for every phase."""
        use = self._held.get(device.uuid, DeviceUse(device.uuid, 0, 0, 0))
        closed = use.exclusive or not device.healthy or not self._pod.selection.accepts_uuid(device.uuid)
        if closed or (self._pod.policies.card.mutex and use.slots):
            self.model.add(sum(self._rows[place, device.uuid] for place in self._asks) == 0)
            return
        stays = [place for place in self._asks if self._pod.containers[place].kind is not ContainerKind.INIT]
        inits = [place for place in self._asks if place not in stays]
        for phase in (stays, *([*(other for other in stays if other < init), init] for init in inits)):
            self._phase(device, use, phase)

    def _phase(self, device: Device, use: DeviceUse, phase: list[int]) -> None:
        rows = {place: self._rows[place, device.uuid] for place in phase}
        model, asks = self.model, self._asks
        model.add(sum(rows.values()) <= device.slots - use.slots)
        memory = sum(rows[place] * _memory(device, asks[place]) for place in phase)
        model.add(memory <= device.memory - use.memory)
        model.add(sum(rows[place] * asks[place].cores for place in phase) <= device.cores - use.cores)
        if self._pod.policies.card.mutex:
            model.add_at_most_one(rows.values())
        for at, place in enumerate(phase):
            if asks[place].cores >= 100:
                if use.slots:
                    model.add(rows[place] == 0)
                for other in phase:
                    if other != place:
                        model.add_at_most_one(rows[place], rows[other])
            if not asks[place].cores and device.cores:
                before = sum(rows[other] * asks[other].cores for other in phase[:at])
                model.add(before <= device.cores - use.cores - 1).only_enforce_if(rows[place])


def _memory(device: Device, request: DeviceRequest) -> int:
    percent = request.memory_percentage
    return device.memory * percent // 100 if percent else request.memory
