"""The openb traces of the GPU cluster simulator behind FGD (USENIX ATC'23), read as nodes and pods.

Why it exists: the traces know thousandths of a GPU and no card memory. It must not place anything. Invariant: a pod of
m milli-GPU becomes m/10 percent of a card's memory and of its cores, rounded up, so both say the same on every model.
Sizes of cards (`CARD_MEMORY`, MiB) are ours: the traces name models, two of them undisclosed, and no sizes.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accounting.node import Device, Node
from accounting.pod import Container, ContainerKind, DeviceRequest, Pod
from accounting.selection import Selection, parse_types
from extender.convert import InputError

NODES = "openb_node_list_gpu_node.csv"
CARD_MEMORY = {"T4": 16_000, "P100": 16_000, "V100M16": 16_000, "V100M32": 32_000, "A10": 24_000}
_OTHER_MEMORY = 40_000
#: Pods on one card at most; the smallest request is 5 % of a card.
_SLOTS = 100


@dataclass(frozen=True, slots=True)
class Machine:
    """A node, and its memory, which kube-scheduler judges."""

    node: Node
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """A pod to place, and the memory that it requests."""

    pod: Pod
    memory_mib: int = 0


def read_machines(folder: str) -> list[Machine]:
    """Return the nodes with GPUs. Raises `InputError`."""
    return [_machine(row) for row in _rows(Path(folder) / NODES, {"sn", "cpu_milli", "memory_mib", "gpu", "model"})]


def read_jobs(folder: str, trace: str) -> list[Job]:
    """Return a trace's pods in the order of the file. Raises `InputError`."""
    path = Path(folder) / f"openb_pod_list_{trace}.csv"
    wanted = {"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"}
    return [_job(row) for row in _rows(path, wanted)]


def _rows(path: Path, wanted: set[str]) -> Iterator[dict[str, str]]:
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            missing = sorted(wanted - set(reader.fieldnames or ()))
            if missing:
                raise InputError("--trace-dir", str(path), f"has no column {missing[0]}")
            for row in reader:
                try:
                    yield _checked(row)
                except ValueError as error:
                    raise InputError(f"{path}, line {reader.line_num}", str(error), "must be a whole number") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError("--trace-dir", str(path), why) from None


#: What fits into 64 bits.
_MOST_DIGITS = 18


def _checked(row: dict[str, str]) -> dict[str, str]:
    for name in ("cpu_milli", "memory_mib", "gpu", "num_gpu", "gpu_milli"):
        text = row.get(name) or "0"
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
            message = f"{name}={row[name]}"
            raise ValueError(message)
    return row


def _machine(row: dict[str, str]) -> Machine:
    memory = CARD_MEMORY.get(row["model"], _OTHER_MEMORY)
    devices = tuple(
        Device(f"{row['sn']}-{index}", index, _SLOTS, memory, 100, row["model"]) for index in range(int(row["gpu"]))
    )
    return Machine(Node(row["sn"], devices, cpu_milli=int(row["cpu_milli"])), int(row["memory_mib"]))


def _job(row: dict[str, str]) -> Job:
    count = int(row["num_gpu"] or 0)
    request, selection = None, Selection()
    if count:
        percent = 100 if count > 1 else -(-int(row["gpu_milli"] or 0) // 10)
        request = DeviceRequest(count, 0, percent, percent)
        selection = Selection(use_types=tuple(sorted(set(parse_types((row.get("gpu_spec") or "").replace("|", ","))))))
    pod = Pod(
        uid=row["name"],
        namespace="openb",
        name=row["name"],
        containers=(Container("main", ContainerKind.APP, request),),
        inits_over=True,
        selection=selection,
        cpu_milli=int(row["cpu_milli"]),
    )
    return Job(pod, int(row["memory_mib"]))
