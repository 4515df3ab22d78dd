"""The state of every card, and all problems, for people and for checks.

Why it exists: verify and the API's lists show the same rows. It must not know JSON. Invariant: everything here is
recomputed from the cache's records and nodes, in a full order.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from accounting.holders import CardClaims
from accounting.holdings import DeviceUse, Resources
from accounting.node import Device, Node
from accounting.pod_record import PodRecord
from accounting.state import Dump, NodeState, name_order
from accounting.state.cache import Cache
from accounting.status import Problem, ProblemCode

#: The namespace/name of a pod or a claim, and what it holds on a card.
Holder = tuple[str, DeviceUse]


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """One card of one node. `device` is None for a card that the node no longer registers."""

    node: str
    uuid: str
    device: Device | None
    cordoned: bool
    capacity: Resources
    requested: Resources
    exclusive: bool
    overcommitted: bool
    blocked: tuple[ProblemCode, ...]
    pods: tuple[str, ...]
    overlapping: bool = False
    """Instances of several pods lie on the same part of the card."""
    holders: tuple[Holder, ...] = ()
    """Each pod and what it holds, in the order of `pods`."""
    claims: tuple[Holder, ...] = ()
    """Each DRA claim and what it holds, by name."""

    @property
    def free(self) -> Resources:
        """Capacity - requested; negative if more is held than there is."""
        return Resources(*(whole - used for whole, used in zip(self.capacity, self.requested, strict=True)))


def device_reports(cache: Cache | Dump) -> list[DeviceReport]:
    """Return every card, by node name, registered cards first in tie order, then orphans by UUID."""
    return [report for node in cache.node_names() for report in node_report(cache, node)]


def node_report(cache: Cache | Dump, node: str) -> list[DeviceReport]:
    """Return the cards of one node."""
    state = cache.node_state(node)
    known, records = state.node, sorted(state.records, key=name_order)
    registered = {} if known is None else {device.uuid: device for device in known.devices}
    cordoned = frozenset() if known is None else known.cordoned
    holders: dict[str, list[Holder]] = defaultdict(list)
    for record in records:
        for use in record.held:
            holders[use.uuid].append((record.key, use))
    blocked = _blocked(state, records, registered)
    claimed = state.claims
    reports = [
        _device(
            node,
            uuid,
            registered.get(uuid),
            holders.get(uuid, []),
            # Of a card that the node does not register, what claims hold is none of accounting's.
            claimed.get(uuid) if uuid in registered else None,
            blocked.get(uuid, ()),
            uuid in cordoned,
        )
        for uuid in [*registered, *sorted(holders.keys() - registered.keys())]
    ]
    overlapping = state.overlapping
    return [
        replace(each, overcommitted=True, overlapping=True) if each.uuid in overlapping else each for each in reports
    ]


class FoundProblems:
    """Collects the problems of nodes, cards and pods while the caller goes through the cards."""

    def __init__(self, cache: Cache | Dump) -> None:
        self._found = set(cache.pod_problems)
        self._node_of: dict[str, str] = {}  # a dict of texts only, which the garbage collector does not look into
        self._nodes_of: dict[str, list[str]] = {}  # cards that several nodes register

    def see_node(self, node: Node | None) -> None:
        """Add the problems of a node's object."""
        self._found.update(() if node is None else node.problems)

    def see_card(self, report: DeviceReport) -> None:
        """Add the problems of a card."""
        if report.device is not None:
            first = self._node_of.setdefault(report.uuid, report.node)
            if first != report.node:
                self._nodes_of.setdefault(report.uuid, [first]).append(report.node)
        self._found.update(_device_problems(report))

    def all(self) -> set[Problem]:
        """Return the problems, after every node and card was added."""
        for uuid, nodes in self._nodes_of.items():
            message = f"is registered on the nodes {', '.join(nodes)}"
            self._found.add(Problem(ProblemCode.DUPLICATE_DEVICE, f"device {uuid}", message))
        return self._found


def problems(cache: Cache) -> list[Problem]:
    """Return the problems of nodes, cards and pods, sorted."""
    found = FoundProblems(cache)
    for node in cache.nodes.values():
        found.see_node(node)
    for report in device_reports(cache):
        found.see_card(report)
    return sorted(found.all())


def problem_counts(cache: Cache) -> dict[ProblemCode, int]:
    """Return the number of problems by code, the same as in `problems` but from the arrays."""
    counts = dict.fromkeys(ProblemCode, 0)
    snapshot = cache.snapshot()
    nodes = snapshot.nodes
    counts[ProblemCode.ORPHANED_DEVICE] = cache.orphans()
    counts[ProblemCode.UNHEALTHY_DEVICE] = _held_unhealthy(cache)
    counts[ProblemCode.OVERCOMMITTED] = int(np.count_nonzero(snapshot.overcommitted))
    # A card that two nodes register has one interned number in several present cells.
    times = np.bincount(nodes.uuid_id[nodes.present])
    counts[ProblemCode.DUPLICATE_DEVICE] = int(np.count_nonzero(times > 1))
    for of_node in cache.node_problems.values():
        for problem in of_node:
            counts[problem.code] += 1
    for found in set(cache.pod_problems):
        counts[found.code] += 1
    return counts


def _held_unhealthy(cache: Cache) -> int:
    """Return how many cards that their register calls unhealthy are held."""
    snapshot = cache.snapshot()
    closed = snapshot.nodes.present & ~snapshot.nodes.healthy & (snapshot.requested.holders > 0)
    if not closed.any():
        return 0
    # Closed are also the cards of a plugin that is gone; the nodes tell which of both it is.
    names = [name for name, row in snapshot.rows.items() if closed[:, row].any()]
    return sum(
        not device.healthy and bool(closed[at, snapshot.rows[name]])
        for name in names
        for at, device in enumerate(cache.nodes[name].devices)
    )


def _device(
    node: str,
    uuid: str,
    device: Device | None,
    holders: list[Holder],
    claims: CardClaims | None,
    blocked: tuple[ProblemCode, ...],
    cordoned: bool,  # noqa: FBT001 - one of six facts about a card
) -> DeviceReport:
    # All claims on a card are one holder, as in the arrays.
    uses = [*(use for _, use in holders), *(() if claims is None else (claims.use,))]
    requested = Resources(
        sum(use.slots for use in uses), sum(use.memory for use in uses), sum(use.cores for use in uses)
    )
    capacity = Resources(0, 0, 0) if device is None else Resources(device.slots, device.memory, device.cores)
    exclusive = any(use.exclusive for use in uses)
    beside = exclusive and len(uses) + sum(use.crowded for use in uses) > 1
    return DeviceReport(
        node=node,
        uuid=uuid,
        device=device,
        cordoned=cordoned,
        capacity=capacity,
        requested=requested,
        exclusive=exclusive,
        overcommitted=beside or any(used > whole for used, whole in zip(requested, capacity, strict=True)),
        blocked=blocked,
        pods=tuple(key for key, _ in holders),
        holders=tuple(holders),
        claims=() if claims is None else claims.holders,
    )


def _blocked(
    state: NodeState, records: list[PodRecord], registered: dict[str, Device]
) -> dict[str, tuple[ProblemCode, ...]]:
    """Return card UUID -> the codes of what blocks it."""
    codes: dict[str, set[ProblemCode]] = defaultdict(set)
    if state.node is not None:
        for uuid in state.node.duplicated:
            codes[uuid].add(ProblemCode.DUPLICATE_DEVICE)
    for record in records:
        if record.blocks is None or record.problem is None:
            continue
        for uuid in [uuid for uuid in record.blocks if uuid in registered] or registered:
            codes[uuid].add(record.problem.code)
    if state.unmapped:
        for uuid in registered:
            codes[uuid].add(ProblemCode.UNMAPPED_DEVICE)
    return {uuid: tuple(sorted(found)) for uuid, found in codes.items()}


def _device_problems(report: DeviceReport) -> Iterator[Problem]:
    where = f"node {report.node} device {report.uuid}"
    if report.device is None:
        message = f"is not registered any more but held by {', '.join(report.pods)}"
        # It has capacity 0, so it would also be reported as over-committed, for the same cause.
        yield Problem(ProblemCode.ORPHANED_DEVICE, where, message)
        return
    if not report.device.healthy and (report.pods or report.claims):
        message = (
            f"is unhealthy but held by {', '.join([*report.pods, *(f'DRA claim {name}' for name, _ in report.claims)])}"
        )
        yield Problem(ProblemCode.UNHEALTHY_DEVICE, where, message)
    if report.overcommitted:
        short = [
            f"{name} {used} held of {whole}"
            for name, used, whole in zip(report.capacity._fields, report.requested, report.capacity, strict=True)
            if used > whole
        ]
        if report.overlapping:
            short.append(f"instances overlap: {', '.join(report.pods)}")
        message = "; ".join(short) or f"an exclusive holder shares it: {', '.join(report.pods) or 'no pod'}"
        if report.claims:
            message += f"; held by DRA claims: {', '.join(name for name, _ in report.claims)}"
            message += f"; by pods: {', '.join(report.pods)}" if short and report.pods else ""
        yield Problem(ProblemCode.OVERCOMMITTED, where, message)
