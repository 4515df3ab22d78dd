"""Metrics per card and per pod, as Prometheus' text, made in steps.

Why it exists: 80,000 cards with nine series each are too many objects for a client library and too much at a stretch
for an event loop. It must not be on by default: such labels are not bounded. Invariants: all samples of a metric follow
its HELP and TYPE; a step is a thousand lines at most; HAMi's metrics have HAMi's names, labels and units.

Source of HAMi's metrics: cmd/scheduler/metrics.go, the older names behind its --legacy-metrics.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from accounting.holdings import DeviceUse
from accounting.pod import Pod
from accounting.pod_record import PodRecord
from extender.cluster import Cluster, unpacked
from extender.config import ServerSettings

_PER_STEP = 1_000
_MIB = 1 << 20


class Card(NamedTuple):
    """One registered card; memory in MiB, cores in percent."""

    node: str
    uuid: str
    number: int
    model: str
    slots: int
    memory: int
    cores: int
    held_slots: int
    held_memory: int
    held_cores: int
    holders: int
    healthy: bool
    in_mig: bool


class Family(NamedTuple):
    """One metric over cards: its name, its text, a card's labels and its value."""

    name: str
    text: str
    labels: Callable[[Card], str]
    value: Callable[[Card], float]
    wanted: Callable[[Card], bool] = lambda _card: True


def extra_series(cluster: Cluster, settings: ServerSettings) -> Iterator[bytes]:
    """Yield the text of what was asked for, in steps; an empty one is a step as well."""
    families = [*(OWN if settings.metrics_per_card else ()), *(HAMI if settings.metrics_hami_names else ())]
    if families:
        cards: list[Card] = []
        for found in _cards(cluster):
            cards += found
            yield b""
        for family in families:
            yield from _family(family, cards)
    if settings.metrics_per_pod:
        yield from _pods(cluster)
    if settings.metrics_hami_names:
        yield from _hami_quotas(cluster)
        if settings.metrics_per_pod:
            yield from _hami_containers(cluster)


def _cards(cluster: Cluster) -> Iterator[list[Card]]:
    """Yield the registered cards of the nodes, by name."""
    cache = cluster.cache
    snapshot, nodes = cache.snapshot(), dict(cache.nodes)
    held = snapshot.requested
    names = sorted(nodes)
    for first in range(0, len(names), _PER_STEP // 8):
        found: list[Card] = []
        for name in names[first : first + _PER_STEP // 8]:
            row = snapshot.rows.get(name)
            if row is None:
                continue
            slots, memory, cores = (each[:, row].tolist() for each in (held.slots, held.memory, held.cores))
            holders, layouts = held.holders[:, row].tolist(), snapshot.nodes.layout[:, row].tolist()
            positions = cache.positions(name)
            for card in nodes[name].devices:
                place = positions.get(card.uuid)
                if place is None:
                    continue
                found.append(
                    Card(
                        name,
                        card.uuid,
                        card.index,
                        card.type,
                        card.slots,
                        card.memory,
                        card.cores,
                        slots[place],
                        memory[place],
                        cores[place],
                        holders[place],
                        card.healthy and not card.gone,
                        layouts[place] > 0,
                    )
                )
        yield found


def _family(family: Family, cards: list[Card]) -> Iterator[bytes]:
    yield _head(family.name, family.text)
    name, labels, value, wanted = family.name, family.labels, family.value, family.wanted
    for first in range(0, len(cards), _PER_STEP):
        lines = [
            f"{name}{{{labels(card)}}} {value(card)}\n" for card in cards[first : first + _PER_STEP] if wanted(card)
        ]
        yield "".join(lines).encode()


def _head(name: str, text: str) -> bytes:
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode()


def _pods(cluster: Cluster) -> Iterator[bytes]:
    records = sorted(cluster.cache.pods.values(), key=lambda each: (each.namespace, each.name, each.uid))
    yield b""
    held: tuple[tuple[str, str, Callable[[DeviceUse], float]], ...] = (
        ("slots", "Slots of a card that a pod holds.", lambda use: use.slots),
        ("memory_bytes", "Memory of a card that a pod holds.", lambda use: use.memory * _MIB),
        ("cores_ratio", "Cores of a card that a pod holds; 1 is a whole card.", lambda use: use.cores / 100),
    )
    for name, text, value in held:
        whole = f"gpu_extender_pod_{name}"
        yield _head(whole, text)
        for part in _parts(records):
            lines = [
                f'{whole}{{{_pod_labels(each)},uuid="{_quoted(use.uuid)}"}} {value(use)}\n'
                for each in part
                for use in each.held
            ]
            yield "".join(lines).encode()


def _parts(records: list[PodRecord]) -> Iterator[list[PodRecord]]:
    for first in range(0, len(records), _PER_STEP):
        yield records[first : first + _PER_STEP]


def _pod_labels(record: PodRecord) -> str:
    return f'namespace="{record.namespace}",pod="{record.name}",node="{record.node}"'


def _hami_quotas(cluster: Cluster) -> Iterator[bytes]:
    for name, keys in (
        ("hami_resource_quota_used", ("namespace", "quota_name", "limit")),
        ("QuotaUsed", ("quotanamespace", "quotaName", "limit")),
    ):
        yield _head(name, "resourcequota usage for a certain device")
        for namespace in cluster.quotas.namespaces():
            for limit in cluster.quotas.limits_of(namespace):
                if not limit.selector:
                    labels = _labels(zip(keys, (namespace, limit.resource, str(limit.hard)), strict=True))
                    yield f"{name}{{{labels}}} {cluster.charges.used(limit)}\n".encode()


def _hami_containers(cluster: Cluster) -> Iterator[bytes]:
    """Yield what each container was given, as HAMi counts it: by its rows, whatever the pod holds by now."""
    new, old = (
        ("namespace", "node", "pod", "container_index", "device_uuid"),
        (
            "podnamespace",
            "nodename",
            "podname",
            "containeridx",
            "deviceuuid",
        ),
    )
    pods = sorted(
        (each for each in cluster.pods_as_kept() if each.node is not None and not each.terminal),
        key=lambda each: (each.namespace, each.name, each.uid),
    )
    yield b""
    for name, keys, text, column in (
        ("hami_vgpu_memory_allocated_bytes", new, "vGPU memory allocated from a container", 5),
        ("hami_vgpu_core_allocated_ratio", new, "vGPU core allocated from a container", 6),
        ("vGPUMemoryAllocated", old, "vGPU memory allocated from a container", 5),
        ("vGPUCoreAllocated", old, "vGPU core allocated from a container", 6),
    ):
        yield _head(name, text)
        for first in range(0, len(pods), _PER_STEP // 10):
            rows = [row for pod in pods[first : first + _PER_STEP // 10] for row in _rows(unpacked(pod))]
            lines = [f"{name}{{{_labels(zip(keys, row[:5], strict=True))}}} {row[column]}\n" for row in rows]
            yield "".join(lines).encode()


def _rows(pod: Pod) -> Iterator[tuple[str, str, str, str, str, int, int]]:
    if isinstance(pod.allocation, tuple):
        for place, own in enumerate(pod.allocation):
            for row in own:
                yield pod.namespace, pod.node or "", pod.name, str(place), row.uuid, row.memory * _MIB, row.cores


def _labels(pairs: Iterable[tuple[str, str]]) -> str:
    # HAMi's registry gives every metric this zone.
    return ",".join([*(f'{key}="{_quoted(value)}"' for key, value in pairs), 'zone="vGPU"'])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _own(card: Card) -> str:
    return f'node="{card.node}",uuid="{_quoted(card.uuid)}",index="{card.number}",model="{_quoted(card.model)}"'


def _hami(names: tuple[str, ...], *further: Callable[[Card], object]) -> Callable[[Card], str]:
    def labels(card: Card) -> str:
        values = [card.node, card.uuid, str(card.number), *(str(each(card)) for each in further)]
        return _labels(zip(names, values, strict=True))

    return labels


def _held_bytes(card: Card) -> int:
    return card.held_memory * _MIB


def _model(card: Card) -> str:
    return card.model


_PREFIX = "gpu_extender_card"
OWN = (
    Family(f"{_PREFIX}_memory_limit_bytes", "Memory of a card.", _own, lambda card: card.memory * _MIB),
    Family(f"{_PREFIX}_memory_allocated_bytes", "Memory that pods hold.", _own, _held_bytes),
    Family(f"{_PREFIX}_cores_limit_ratio", "Cores of a card; 1 is all.", _own, lambda card: card.cores / 100),
    Family(f"{_PREFIX}_cores_allocated_ratio", "Cores that pods hold.", _own, lambda card: card.held_cores / 100),
    Family(f"{_PREFIX}_slots_limit", "Slots of a card.", _own, lambda card: card.slots),
    Family(f"{_PREFIX}_slots_allocated", "Slots that pods hold.", _own, lambda card: card.held_slots),
    Family(f"{_PREFIX}_pods", "Pods that hold a part of a card.", _own, lambda card: card.holders),
    Family(
        f"{_PREFIX}_healthy", "1 while the device plugin calls a card healthy.", _own, lambda card: int(card.healthy)
    ),
    Family(
        f"{_PREFIX}_mig_instances",
        "Instances that pods hold on a card in MIG mode.",
        _own,
        lambda card: card.held_slots,
        lambda card: card.in_mig,
    ),
)

_NEW = ("node", "device_uuid", "device_index")
_OLD = ("nodeid", "deviceuuid", "deviceidx")


def _cores_percent(card: Card) -> int:
    """Return the share of a card's cores that is held, in percent, rounded up; 0 for a card without cores."""
    return -(-card.held_cores * 100 // card.cores) if card.cores > 0 else 0


def _of_hami(names: tuple[str, ...], ends: tuple[str, ...], metrics: tuple[str, ...], *, is_old: bool) -> list[Family]:
    cores, memory, model = ends
    typed = _hami((*names, model), _model)
    with_cores = _hami((*names, cores, model), lambda card: card.cores, _model)
    whole = _hami((*names, cores, memory, model), lambda card: card.cores, lambda card: card.memory, _model)
    limit, core_limit, allocated, shared, core_allocated, overview, percentage = metrics
    return [
        Family(limit, "Device memory limit for a certain GPU", typed, lambda card: card.memory * _MIB),
        Family(
            core_limit,
            "Device core limit for a certain GPU",
            typed,
            lambda card: card.cores if is_old else (100 if card.cores > 0 else 0),
        ),
        Family(
            allocated, "Device memory allocated for a certain GPU", with_cores, lambda card: card.held_memory * _MIB
        ),
        Family(shared, "Number of containers sharing this GPU", typed, lambda card: card.held_slots),
        Family(
            core_allocated,
            "Device core allocated for a certain GPU",
            typed,
            lambda card: card.held_cores if is_old else _cores_percent(card),
        ),
        Family(overview, "GPU overview on a certain node", whole, _held_bytes),
        Family(
            percentage,
            "GPU Memory Allocated Percentage on a certain GPU",
            _hami(names),
            lambda card: card.held_memory / card.memory,
            lambda card: card.memory > 0,
        ),
    ]


HAMI = (
    *_of_hami(
        _NEW,
        ("device_cores", "device_memory_limit", "device_type"),
        (
            "hami_gpu_memory_limit_bytes",
            "hami_gpu_core_limit_ratio",
            "hami_gpu_memory_allocated_bytes",
            "hami_gpu_shared_count",
            "hami_gpu_core_allocated_ratio",
            "hami_node_gpu_overview",
            "hami_node_gpu_memory_allocated_ratio",
        ),
        is_old=False,
    ),
    *_of_hami(
        _OLD,
        ("devicecores", "devicememorylimit", "devicetype"),
        (
            "GPUDeviceMemoryLimit",
            "GPUDeviceCoreLimit",
            "GPUDeviceMemoryAllocated",
            "GPUDeviceSharedNum",
            "GPUDeviceCoreAllocated",
            "nodeGPUOverview",
            "nodeGPUMemoryPercentage",
        ),
        is_old=True,
    ),
)
