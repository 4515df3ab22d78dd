"""The phases of a pod's life, in order, and what its containers use of each card in each phase.

Why it exists: "it holds 22 GiB now and 12 GiB after its inits" is easiest to see as a row of phases. It must not
compute what the pod holds: accounting does, as the highest of the phases that are still to come. Invariant: one phase
per init, with the sidecars declared before it, then the steady one.
"""

from collections.abc import Sequence

from accounting.pod import Allocation, Container, ContainerKind, DeviceRow
from extender.reports.shapes import Phase, Uses


def phases(containers: Sequence[Container], allocation: Allocation) -> list[Phase]:
    """Return the phases. `allocation`: the rows of each container."""
    found: list[Phase] = []
    staying: list[tuple[str, tuple[DeviceRow, ...]]] = []
    for container, rows in zip(containers, allocation, strict=True):
        if container.kind is ContainerKind.INIT:
            found.append(_phase(f"init {container.name}", [*staying, (container.name, rows)]))
        else:
            staying.append((container.name, rows))
    return [*found, _phase("steady", staying)]


def _phase(name: str, parts: list[tuple[str, tuple[DeviceRow, ...]]]) -> Phase:
    cards: dict[str, Uses] = {}
    for _, rows in parts:
        for row in rows:
            use = cards.setdefault(row.uuid, {"slots": 0, "memory": 0, "cores": 0})
            use["slots"] += 1
            use["memory"] += row.memory
            use["cores"] += row.cores
    return {"phase": name, "containers": [each for each, _ in parts], "cards": dict(sorted(cards.items()))}
