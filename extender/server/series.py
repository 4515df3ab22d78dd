"""Metrics per card, as Prometheus' text, made in steps, and with them all further series that were asked for.

Why it exists: 80,000 cards with nine series each are too many objects for a client library, and too much for the event
loop in one go. It must not be on by default, because such labels are not bounded. Invariants: all samples of a metric
follow its HELP and TYPE; a step is at most a thousand lines; HAMi's metrics have HAMi's names, labels and units.

Source of HAMi's metrics: HAMi's cmd/scheduler/metrics.go; the older names are those of its --legacy-metrics.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from accounting.holders import CardClaims
from accounting.state import untracked
from extender.cluster import Cluster
from extender.config import ServerSettings
from extender.server.claim_series import claim_series
from extender.server.pod_series import hami_containers, pod_series
from extender.server.prometheus_text import head, labels, quoted
from extender.server.raw_series import raw_series

_PER_STEP = 500
_MIB = 1 << 20


class Card(NamedTuple):
    """One registered card; memory in MiB, cores in percent, texts escaped for use between quotes."""

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
    pods: int
    claims: int
    healthy: bool
    in_mig: bool


class Family(NamedTuple):
    """One metric over cards: its name and help, a card's labels, and a card's value."""

    name: str
    text: str
    labels: "Labels"
    value: Callable[[Card], float]
    wanted: Callable[[Card], bool] | None = None


Labels = Callable[[Card], str]


def extra_series(cluster: Cluster, settings: ServerSettings) -> Iterator[bytes]:
    """Yield the text of the series that are turned on, in steps; an empty text is a step too."""
    families = [*(OWN if settings.metrics_per_card else ()), *(HAMI if settings.metrics_hami_names else ())]
    if families:
        cards: list[Sequence[Card]] = []
        for found in _cards(cluster):
            cards.append(untracked(found))
            yield b""
        known: dict[Labels, list[Sequence[str]]] = {}
        for family in families:
            yield from _family(family, cards, known)
        while cards:
            # All at once would take as long as many steps.
            cards.pop()
            for made in known.values():
                made.pop()
            yield b""
    if settings.metrics_per_pod:
        yield from pod_series(cluster)
        yield from claim_series(cluster)
        yield from raw_series(cluster)
    if settings.metrics_hami_names:
        yield from _hami_quotas(cluster)
        if settings.metrics_per_pod:
            yield from hami_containers(cluster)


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
            positions, claimed = cache.positions(name), cache.claimed.on(name)
            for card in nodes[name].devices:
                place = positions.get(card.uuid)
                if place is None:
                    continue
                found.append(
                    Card(
                        name,
                        quoted(card.uuid),
                        card.index,
                        quoted(card.type),
                        card.slots,
                        card.memory,
                        card.cores,
                        slots[place],
                        memory[place],
                        cores[place],
                        holders[place] - _of_claims(claimed.get(card.uuid)),
                        len(claimed[card.uuid].holders) if card.uuid in claimed else 0,
                        card.healthy and not card.gone,
                        layouts[place] > 0,
                    )
                )
        yield found


def _of_claims(claims: CardClaims | None) -> int:
    """Return how many of a card's holders in the arrays are its claims; see `DeviceTable.add`."""
    return 0 if claims is None else 1 + claims.use.crowded


def _family(family: Family, cards: list[Sequence[Card]], known: dict[Labels, list[Sequence[str]]]) -> Iterator[bytes]:
    """Yield one metric. `known`: label texts made before, since most metrics share their labels with another."""
    if family.labels not in known:
        made = known[family.labels] = []
        for part in cards:
            made.append(untracked(list(map(family.labels, part))))
            yield b""
    yield head(family.name, family.text)
    name, value, wanted = family.name, family.value, family.wanted
    for part, texts in zip(cards, known[family.labels], strict=True):
        both = zip(part, texts, strict=True)
        lines = [f"{name}{{{text}}} {value(card)}\n" for card, text in both if wanted is None or wanted(card)]
        yield "".join(lines).encode()


def _hami_quotas(cluster: Cluster) -> Iterator[bytes]:
    for name, keys in (
        ("hami_resource_quota_used", ("namespace", "quota_name", "limit")),
        ("QuotaUsed", ("quotanamespace", "quotaName", "limit")),
    ):
        yield head(name, "resourcequota usage for a certain device")
        for namespace in cluster.quotas.namespaces():
            for limit in cluster.quotas.limits_of(namespace):
                if not limit.selector:
                    of_limit = labels(zip(keys, (namespace, limit.resource, str(limit.hard)), strict=True))
                    yield f"{name}{{{of_limit}}} {cluster.charges.used(limit)}\n".encode()


def _own(card: Card) -> str:
    return f'node="{card.node}",uuid="{card.uuid}",index="{card.number}",model="{card.model}"'


def _held_bytes(card: Card) -> int:
    return card.held_memory * _MIB


_PREFIX = "gpu_extender_card"
OWN = (
    Family(f"{_PREFIX}_memory_limit_bytes", "Memory of a card.", _own, lambda card: card.memory * _MIB),
    Family(f"{_PREFIX}_memory_allocated_bytes", "Memory that is held.", _own, _held_bytes),
    Family(f"{_PREFIX}_cores_limit_ratio", "Cores of a card; 1 is all.", _own, lambda card: card.cores / 100),
    Family(f"{_PREFIX}_cores_allocated_ratio", "Cores that are held.", _own, lambda card: card.held_cores / 100),
    Family(f"{_PREFIX}_slots_limit", "Slots of a card.", _own, lambda card: card.slots),
    Family(f"{_PREFIX}_slots_allocated", "Slots that are held.", _own, lambda card: card.held_slots),
    Family(f"{_PREFIX}_pods", "Pods that hold a part of a card.", _own, lambda card: card.pods),
    Family(f"{_PREFIX}_claims", "DRA claims that hold a part of a card.", _own, lambda card: card.claims),
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


def _cores_percent(card: Card) -> int:
    """Return the share of a card's cores that is held, in percent, rounded up; 0 for a card without cores."""
    return -(-card.held_cores * 100 // card.cores) if card.cores > 0 else 0


def _of_hami(names: tuple[str, str, str], ends: tuple[str, str, str], metrics: tuple[str, ...]) -> list[Family]:
    """Return the metrics of one generation of names. HAMi's older ones give cores as they are registered."""
    node, uuid, index = names
    cores, memory, model = ends
    is_old = node == "nodeid"

    def plain(card: Card) -> str:
        return f'{node}="{card.node}",{uuid}="{card.uuid}",{index}="{card.number}",zone="vGPU"'

    def typed(card: Card) -> str:
        return f'{plain(card)},{model}="{card.model}"'

    def with_cores(card: Card) -> str:
        return f'{typed(card)},{cores}="{card.cores}"'

    def whole(card: Card) -> str:
        return f'{with_cores(card)},{memory}="{card.memory}"'

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
            plain,
            lambda card: card.held_memory / card.memory,
            lambda card: card.memory > 0,
        ),
    ]


HAMI = (
    *_of_hami(
        ("node", "device_uuid", "device_index"),
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
    ),
    *_of_hami(
        ("nodeid", "deviceuuid", "deviceidx"),
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
    ),
)
