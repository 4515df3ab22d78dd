"""A pod as it concerns one vendor's cards.

Why it exists: requests for cards of different vendors are independent, so fitting, judging and explaining a pod go
vendor by vendor and see one vendor at a time. It must not know which vendors there are. Invariant: a pod is the sum of
its parts, and a pod that asks for one vendor's cards is its own and only part.
"""

from collections.abc import Mapping
from itertools import zip_longest

from accounting.pod import Allocation, Container, DeviceRow, Pod, UnreadableAllocation
from accounting.status import Invalid


def part_of(pod: Pod, vendor: str) -> Pod:
    """Return the part of a pod that asks for a vendor's cards. It keeps all containers, so positions do not change."""
    selection = next((each for each in pod.further_selections if each.vendor == vendor), pod.selection)
    return pod._replace(
        containers=tuple(_container(each, vendor) for each in pod.containers),
        selection=selection,
        further_selections=(),
    )


def requested_vendors(pod: Pod) -> tuple[str, ...]:
    """Return the keys of the vendors that a pod asks, the first container's first."""
    if not pod.further_selections:
        for each in pod.containers:
            if each.request is not None:
                return (each.request.vendor,)
        return ()
    return tuple(selection.vendor for selection in (pod.selection, *pod.further_selections))


def checked_vendors(
    pod: Pod, allocation: Allocation | UnreadableAllocation, fields: Mapping[str, str]
) -> Allocation | UnreadableAllocation:
    """Return an allocation, or that it is unreadable because it lacks the rows of a vendor that the pod asks.

    `fields`: vendor key -> where its annotation stands, for the message. A pod that asks one vendor lacks its rows
    only if its allocation is another vendor's.
    """
    if isinstance(allocation, UnreadableAllocation):
        return allocation
    rows = [row for own in allocation for row in own]
    missing = [key for key in requested_vendors(pod) if not any(row.vendor == key for row in rows)]
    if not missing or not rows:
        return allocation
    uuids = {row.uuid for row in rows}
    why = Invalid(fields[missing[0]], "", "is absent or empty, and the pod asks for these cards")
    return UnreadableAllocation(tuple(sorted(uuids)), why)


def rows_of(allocation: Allocation, vendor: str) -> Allocation:
    """Return only a vendor's rows, at their containers' positions."""
    return tuple(tuple(row for row in own if row.vendor == vendor) for own in allocation)


def merged(allocations: list[Allocation]) -> Allocation:
    """Return the rows of several parts of one pod together. Some may have rows of the pod as a whole, at the end."""
    none: tuple[DeviceRow, ...] = ()
    return tuple(tuple(row for own in each for row in own) for each in zip_longest(*allocations, fillvalue=none))


def _container(container: Container, vendor: str) -> Container:
    request = next((each for each in container.requests if each.vendor == vendor), None)
    return Container(container.name, container.kind, request)
