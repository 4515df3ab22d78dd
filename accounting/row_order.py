"""Which container each written row of an allocation belongs to.

Why it exists: HAMi's versions leave rows out in different ways (docs/hami.md has the table), and whose row it is
decides when it is freed. It must not know texts. Invariant: every row is kept, and no reading frees a card that a
running container may still use.

The readings of one vendor's rows, in this order:

1. as many rows as containers: by position;
2. no row is empty and there are as many as containers that ask for this vendor's cards: those containers in spec order,
   unless some row's number of cards is not what its container asks for;
3. as many rows as apps: the apps', as HAMi v2.8 and older write them; inits and sidecars hold nothing;
4. anything else: the pod as a whole holds all rows from start to end.

Readings 3 and 4 hold the most that the rows can mean, so wherever the spec leaves a doubt about 1 or 2, one of them is
taken. HAMi v2.9 and older move rows of pods that ask several vendors to later containers (HAMi#2335). Where a container
that asks is left without a row and an init has one, rows have moved, and 1 is out: a sidecar's row would end too early.
"""

from collections.abc import Sequence

from accounting.pod import Allocation, Container, ContainerKind, DeviceRow

_Rows = Sequence[tuple[DeviceRow, ...]]


def rows_by_container(rows: _Rows, containers: tuple[Container, ...], vendor: str) -> Allocation:
    """Return one entry per container; in the last reading one more, which holds all rows.

    `rows`: as written, empty ones too. `vendor`: key of the one whose rows they are.
    """
    # Rewriting by HAMi's device plugin leaves empty rows at the end.
    if len(rows) >= len(containers) and not any(rows[len(containers) :]) and not has_moved(rows, containers, vendor):
        return tuple(rows[: len(containers)])
    asking = [at for at, container in enumerate(containers) if _asked(container, vendor)]
    if all(rows) and len(rows) == len(asking) and _agree(rows, [containers[at] for at in asking], containers, vendor):
        return _placed(rows, asking, containers)
    apps = [at for at, container in enumerate(containers) if container.kind is ContainerKind.APP]
    if len(rows) == len(apps):
        return _placed(rows, apps, containers)
    return (*((),) * len(containers), tuple(row for own in rows for row in own))


def has_moved(rows: Sequence[object], containers: tuple[Container, ...], vendor: str) -> bool:
    """Whether a container that asks has no row, while an init has one that may be its: it would end with the init.

    `rows`: of each container something that is true if it has a row with a card.
    """
    placed = list(zip(containers, rows, strict=False))
    if not any(own and container.kind is ContainerKind.INIT for container, own in placed):
        return False
    return any(not own and (container.misread or _asked(container, vendor) > 0) for container, own in placed)


def _agree(rows: _Rows, asking: Sequence[Container], containers: tuple[Container, ...], vendor: str) -> bool:
    """Whether every row has as many cards as its container asks for, and nothing is unknown of what is asked."""
    if any(container.misread for container in containers):
        return False
    return all(len(own) == _asked(container, vendor) for container, own in zip(asking, rows, strict=True))


def _asked(container: Container, vendor: str) -> int:
    """Return how many of a vendor's cards a container asks for."""
    return sum(request.count for request in container.requests if request.vendor == vendor)


def _placed(rows: _Rows, places: Sequence[int], containers: tuple[Container, ...]) -> Allocation:
    placed: list[tuple[DeviceRow, ...]] = [()] * len(containers)
    for at, own in zip(places, rows, strict=True):
        placed[at] = own
    return tuple(placed)
