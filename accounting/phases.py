"""Which containers of a pod are on the cards at the same time.

Why it exists: sidecars and apps share one copy of a node, and every init has a fork that holds only the sidecars
declared before it; fitting and the exact search both start from that list. It must not know cards. Invariant:
containers that ask for no card are left out, and both lists are in spec order.
"""

from dataclasses import dataclass

from accounting.demand import Demand
from accounting.pod import ContainerKind, DeviceRequest


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """A container that asks for cards."""

    position: int
    """Its place in `Pod.containers`."""
    kind: ContainerKind
    request: DeviceRequest


@dataclass(frozen=True, slots=True)
class Phases:
    """Sidecars and apps, which stay, and the inits, each with the number of `shared` that are declared before it."""

    shared: tuple[ContainerRequest, ...]
    inits: tuple[tuple[ContainerRequest, int], ...]

    @classmethod
    def of(cls, demand: Demand) -> "Phases":
        """Return a pod's phases."""
        shared: list[ContainerRequest] = []
        inits: list[tuple[ContainerRequest, int]] = []
        for position, asked in enumerate(demand.containers):
            if asked.request is None:
                continue
            container = ContainerRequest(position, asked.kind, asked.request)
            if container.kind is ContainerKind.INIT:
                inits.append((container, len(shared)))
            else:
                shared.append(container)
        return cls(tuple(shared), tuple(inits))

    def others_before(self, position: int) -> bool:
        """Whether some other container has chosen cards on the copy where this one is fitted."""
        for container, before in self.inits:
            if container.position == position:
                return before > 0
        return bool(self.shared) and self.shared[0].position != position
