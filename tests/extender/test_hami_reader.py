"""HAMi can read what bind writes: its scheduler by position, its device plugin row after row.

It exists because the device plugin of a node acts on our text. The Go module proxy does not serve HAMi's module, so its
reader is rewritten here, after pkg/device/devices.go and the plugin's Allocate. The plugin takes the same rows in the
same order in v2.7 to v2.10; up to v2.8 the decoder also drops empty rows (docs/hami.md). Invariant: the reader uses
none of the code under test.
"""

from random import Random
from typing import NamedTuple

import pytest

from accounting.pod import Allocation, ContainerKind, DeviceRow, FurtherRow
from accounting.vendor import NVIDIA
from accounting.vendors import HYGON
from benchmarks.hami_pods import encoded
from extender.convert import bind_annotations

TO_ALLOCATE, ALLOCATED = "hami.io/vgpu-devices-to-allocate", "hami.io/vgpu-devices-allocated"
PODS = 1_000


class Device(NamedTuple):
    """HAMi's ContainerDevice."""

    uuid: str
    type: str
    memory: int
    cores: int


def decoded(text: str) -> list[list[Device]]:
    """HAMi's DecodePodDevices: a part without a comma means nothing, and the last semicolon leaves an empty row."""
    rows = []
    for row in text.split(";"):
        devices = [part.split(",") for part in row.split(":") if "," in part]
        assert all(len(fields) >= 4 for fields in devices)
        rows.append([Device(uuid, kind, int(memory), int(cores)) for uuid, kind, memory, cores, *_ in devices])
    return rows


def allocated_by_the_plugin(text: str, asking: list[int]) -> list[list[Device]]:
    """Return the rows that containers get as the kubelet starts them: each takes the first row that is not empty."""
    rows, given = decoded(text), []
    for count in asking:
        at = next(at for at, row in enumerate(rows) if row)
        assert len(rows[at]) == count, "the plugin refuses a row with another number of devices"
        given.append(rows[at])
        rows[at] = []
    assert not any(rows)
    return given


def random_allocation(random: Random) -> Allocation:
    kinds = random.choices(list(ContainerKind), k=random.randint(1, 6))
    rows = [
        tuple(
            DeviceRow(f"GPU-{uuid}", random.randint(0, 2**31 - 1), random.randint(0, 100))
            for uuid in random.sample(range(8), random.choice((0, 1, 1, 2)))
        )
        for _ in kinds
    ]
    return tuple(rows) if any(rows) else (*rows, (DeviceRow("GPU-0", 1, 1),))


@pytest.mark.parametrize("further", [False, True], ids=["NVIDIA alone", "beside another vendor"])
def test_hami_reads_what_bind_writes(further: bool) -> None:
    random = Random(12)
    for _ in range(PODS):
        rows = random_allocation(random)
        mixed = [(*own, *([FurtherRow.of("DCU-1", 5, 5, "DCU")] if further else [])) for own in rows]
        texts = bind_annotations((NVIDIA, HYGON), "n1", tuple(mixed), 1, lock_mode=True)
        assert texts[TO_ALLOCATE] == texts[ALLOCATED] == encoded([list(own) for own in rows], "NVIDIA")
        expected = [[Device(row.uuid, "NVIDIA", row.memory, row.cores) for row in own] for own in rows]
        assert decoded(texts[ALLOCATED]) == [*expected, []]
        asking = [own for own in expected if own]
        assert allocated_by_the_plugin(texts[TO_ALLOCATE], [len(own) for own in asking]) == asking
        assert texts["hami.io/dcu-devices-allocated"] == ("DCU-1,DCU,5,5:;" * len(rows) if further else "")
