"""Metrics per pod, as Prometheus' text, made in steps.

Why it exists: 100,000 pods are scraped every quarter of a minute, so a sample costs one formatted text, and nothing is
sorted. It must not be on by default: such labels are not bounded. Invariants: a pod is looked at once per scrape, so
its series agree; all samples of a metric follow its HELP and TYPE; a step takes some milliseconds at most.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from accounting.pod import Pod
from accounting.pod_record import PodRecord
from accounting.state import untracked
from extender.cluster import Cluster, unpacked
from extender.server.prometheus_text import head, labels, quoted

T = TypeVar("T")
_PER_STEP = 500
#: Reading the rows of an annotation takes longer than writing down what a pod holds.
_READ_PER_STEP = 50
_MIB = 1 << 20
#: What nearly all ratios are.
_RATIOS = tuple(str(percent / 100) for percent in range(101))
_WHOLE = len(_RATIOS) - 1

_SLOTS, _MEMORY, _CORES = "gpu_extender_pod_slots", "gpu_extender_pod_memory_bytes", "gpu_extender_pod_cores_ratio"
_TEXTS = {
    _SLOTS: "Slots of a card that a pod holds.",
    _MEMORY: "Memory of a card that a pod holds.",
    _CORES: "Cores of a card that a pod holds; 1 is a whole card.",
}


def pod_series(cluster: Cluster) -> Iterator[bytes]:
    """Yield what every pod holds of every card, in the order in which the cache has them; an empty text is a step."""
    later: dict[str, list[bytes]] = {_MEMORY: [], _CORES: []}
    yield head(_SLOTS, _TEXTS[_SLOTS])
    for records in _parts(cluster.cache.pods.values(), _PER_STEP):
        slots, memory, cores = _lines(records)
        yield "".join(slots).encode()
        later[_MEMORY].append("".join(memory).encode())
        later[_CORES].append("".join(cores).encode())
    for name, texts in later.items():
        yield head(name, _TEXTS[name])
        yield from texts


def _lines(records: Sequence[PodRecord]) -> tuple[list[str], list[str], list[str]]:
    """Return the samples of slots, memory and cores."""
    slots, memory, cores = [], [], []
    for record in records:
        begin = f'{{namespace="{record.namespace}",pod="{record.name}",node="{record.node}",uuid="'
        for uuid, slot_count, mib, percent, _, _ in record.held:
            of_use = f'{begin}{quoted(uuid)}"}}'
            slots.append(f"{_SLOTS}{of_use} {slot_count}\n")
            memory.append(f"{_MEMORY}{of_use} {mib * _MIB}\n")
            ratio = _RATIOS[percent] if 0 <= percent <= _WHOLE else percent / 100
            cores.append(f"{_CORES}{of_use} {ratio}\n")
    return slots, memory, cores


#: What a container was given of one card: namespace, node, pod, the container's number, UUID, bytes, percent of cores.
#: A plain tuple, because the garbage collector loses sight of plain ones only, and there are hundreds of thousands.
Given = tuple[str, str, str, int, str, int, int]


def hami_containers(cluster: Cluster) -> Iterator[bytes]:
    """Yield what each container was given, as HAMi counts it: by its rows, whatever the pod holds by now."""
    given: list[Sequence[Given]] = []
    for uids in _parts(cluster.registry.uids, _READ_PER_STEP):
        pods = filter(None, map(cluster.pod_without_rows, uids))
        rows = [row for pod in pods if pod.node is not None and not pod.terminal for row in _rows(unpacked(pod))]
        given.append(untracked(rows))
        yield b""
    new = ("namespace", "node", "pod", "container_index", "device_uuid")
    old = ("podnamespace", "nodename", "podname", "containeridx", "deviceuuid")
    memory, cores = "vGPU memory allocated from a container", "vGPU core allocated from a container"
    yield from _of_containers("hami_vgpu_memory_allocated_bytes", memory, new, given, is_memory=True)
    yield from _of_containers("hami_vgpu_core_allocated_ratio", cores, new, given, is_memory=False)
    yield from _of_containers("vGPUMemoryAllocated", memory, old, given, is_memory=True)
    yield from _of_containers("vGPUCoreAllocated", cores, old, given, is_memory=False)


def _of_containers(
    name: str, text: str, keys: tuple[str, ...], given: Sequence[Sequence[Given]], *, is_memory: bool
) -> Iterator[bytes]:
    form = f"{name}{{{labels((key, '%s') for key in keys)}}} %d\n"
    yield head(name, text)
    for rows in given:
        lines = [form % (*row[:5], row[5 if is_memory else 6]) for row in rows]
        yield "".join(lines).encode()


def _rows(pod: Pod) -> Iterator[Given]:
    if isinstance(pod.allocation, tuple):
        for place, own in enumerate(pod.allocation):
            for row in own:
                uuid, memory = quoted(row.uuid), row.memory * _MIB
                yield pod.namespace, pod.node or "", pod.name, place, uuid, memory, row.cores


def _parts(values: Collection[T], size: int) -> Iterator[Sequence[T]]:
    """Yield what there is now, so many at a time."""
    kept = untracked(values)
    return (kept[first : first + size] for first in range(0, len(kept), size))
