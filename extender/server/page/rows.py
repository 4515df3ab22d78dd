"""One line of the page: a node and its cards, as few numbers.

Why it exists: 80,000 cards must fit in a browser and on the wire, so a card is a list of integers. It must not know
HTTP. Invariant: what only inits, sidecars, apps and DRA claims hold adds up to what is requested.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import orjson

from accounting.answers import DeviceReport, RawReport, node_report
from accounting.holdings import DeviceUse
from accounting.pod import ContainerKind, Pod
from accounting.pod_record import PodRecord, State
from extender.cluster import Cluster

#: The bits of a card's marks.
ORPHANED, OVERCOMMITTED, BLOCKED, UNHEALTHY, CORDONED, EXCLUSIVE = (1 << bit for bit in range(6))
#: The names of a card's entries, in order; threes are slots, MiB and percent.
FIELDS = (
    "model",
    "marks",
    *(f"capacity {each}" for each in ("slots", "memory", "cores")),
    *(f"requested {each}" for each in ("slots", "memory", "cores")),
    *(f"inits {each}" for each in ("slots", "memory", "cores")),
    *(f"sidecars {each}" for each in ("slots", "memory", "cores")),
    "reserved memory",
    "pods",
    "namespaces",
    "claimed",
)
#: The names of the entries of whole devices under one raw key, in order.
RAW_FIELDS = ("key", "marks", "allocatable", "pods", "vmis", "holds", "namespaces")

Amounts = tuple[int, int, int]
_NOTHING: Amounts = (0, 0, 0)


class Parts(NamedTuple):
    """The parts of what is held on one card: by inits only, and by sidecars; the rest is held by apps."""

    inits: Amounts = _NOTHING
    sidecars: Amounts = _NOTHING


def node_line(cluster: Cluster, node: str, raw: Sequence[RawReport] = ()) -> bytes:
    """Return a node as JSON: its name "n", models "t", namespaces "s", cards "c", each with `FIELDS`.

    If it has whole devices, it also has "r", each with `RAW_FIELDS`.
    """
    reports = node_report(cluster.cache, node)
    parts = _parts(cluster, cluster.cache.pods_on(node))
    models = list(dict.fromkeys(_model(report) for report in reports))
    names = [name for report in reports for name in _names(report)]
    names += [each.name for report in raw for each in report.holders]
    spaces = list(dict.fromkeys(map(_namespace, names)))
    cards = [
        (
            models.index(_model(report)),
            _marks(report),
            *report.capacity,
            *report.requested,
            *parts.get(report.uuid, Parts()).inits,
            *parts.get(report.uuid, Parts()).sidecars,
            0 if report.device is None else report.device.reserved_memory,
            len(report.pods),
            sorted({spaces.index(_namespace(name)) for name in _names(report)}),
            _claimed(report),
        )
        for report in reports
    ]
    line = {"n": node, "t": models, "s": spaces, "c": cards}
    return orjson.dumps(line | {"r": [_raw(each, spaces) for each in raw]} if raw else line)


def _raw(report: RawReport, spaces: list[str]) -> tuple[object, ...]:
    units = {kind: sum(each.units for each in report.holders if each.kind == kind) for kind in ("pod", "vmi", "hold")}
    marks = OVERCOMMITTED if report.free < 0 else 0
    where = sorted({spaces.index(_namespace(each.name)) for each in report.holders})
    return report.key, marks, report.allocatable, *units.values(), where


def _names(report: DeviceReport) -> list[str]:
    """Return the namespace/name of all who hold a part of a card."""
    return [*report.pods, *(name for name, _ in report.claims)]


def _claimed(report: DeviceReport) -> tuple[int, ...]:
    """Return the slots, MiB and percent that DRA claims hold, and their number; nothing if there are none."""
    uses = [use for _, use in report.claims]
    if not uses:
        return ()
    return sum(use.slots for use in uses), sum(use.memory for use in uses), sum(use.cores for use in uses), len(uses)


def _model(report: DeviceReport) -> str:
    return "" if report.device is None else report.device.type


def _namespace(name: str) -> str:
    return name.partition("/")[0]


def _marks(report: DeviceReport) -> int:
    card = report.device
    marks = [
        (ORPHANED, card is None),
        (OVERCOMMITTED, report.overcommitted),
        (BLOCKED, bool(report.blocked)),
        (UNHEALTHY, card is not None and (not card.healthy or card.gone)),
        (CORDONED, report.cordoned),
        (EXCLUSIVE, report.exclusive),
    ]
    return sum(bit for bit, holds in marks if holds)


def _parts(cluster: Cluster, records: Iterable[PodRecord]) -> dict[str, Parts]:
    """Return the parts held by inits only and by sidecars, by card."""
    found: dict[str, Parts] = {}
    for record in records:
        if record.state is State.PEAK and record.peak is not record.steady:
            _add_inits(found, record)
        known = cluster.pod_without_rows(record.uid)
        if known is not None and record.state is not State.RELEASED and _has_sidecar(known):
            _add_sidecars(found, record, lambda uid=record.uid: cluster.pod(uid))  # type: ignore[misc]
    return found


def _add_inits(found: dict[str, Parts], record: PodRecord) -> None:
    steady = {use.uuid: use for use in record.steady}
    for use in record.peak:
        rest = steady.get(use.uuid, DeviceUse(use.uuid, 0, 0, 0))
        more = (use.slots - rest.slots, use.memory - rest.memory, use.cores - rest.cores)
        part = found.get(use.uuid, Parts())
        found[use.uuid] = part._replace(inits=_sum(part.inits, more))


def _add_sidecars(found: dict[str, Parts], record: PodRecord, read: Callable[[], Pod | None]) -> None:
    """Add the sidecars' rows, at most what the pod holds when its inits are over."""
    pod = read()
    if pod is None or not isinstance(pod.allocation, tuple):
        return
    own: dict[str, Amounts] = {}
    for container, rows in zip(pod.containers, pod.allocation, strict=True):
        if container.kind is ContainerKind.SIDECAR:
            for row in rows:
                own[row.uuid] = _sum(own.get(row.uuid, _NOTHING), (1, row.memory, row.cores))
    for use in record.steady:
        if use.uuid in own:
            slots, memory, cores = own[use.uuid]
            held = (min(slots, use.slots), min(memory, use.memory), min(cores, use.cores))
            part = found.get(use.uuid, Parts())
            found[use.uuid] = part._replace(sidecars=_sum(part.sidecars, held))


def _has_sidecar(pod: Pod) -> bool:
    return any(each.kind is ContainerKind.SIDECAR and each.request is not None for each in pod.containers)


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
