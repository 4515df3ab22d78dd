"""Every card of every node, as integer arrays.

Why it exists: fitting runs over many nodes at once, so capacity and what is requested lie in arrays shaped (device
position, node row), padded with absent cards of capacity 0. It must not know pods or names. Invariant: `requested` is
never clamped, so free = capacity - requested may be negative. `cells` changes single cells.

Two groups, because they change at different rates: `NodeArrays` only when a node changes, `RequestedArrays` with every
pod event.
"""

from dataclasses import Field, dataclass, field, fields
from typing import Self, cast

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

#: One full card in one dimension, in the fixed-point unit of `load`.
FULL_LOAD = 1 << 20
#: Far beyond any card that takes another row, and small enough to be shifted.
MAX_LOAD = 1 << 55

#: Marks arrays of one row per vendor but the first, which most clusters have none of.
_PER_VENDOR = {"axis": "vendor"}

# Freeing one large block makes glibc keep freed blocks up to that size instead of returning them to the kernel.
# Otherwise every array that a fit makes can cause page faults again, and a filter takes three times as long.
np.empty(1 << 24, np.uint8)


class _Taken:
    """Some rows of a bundle. An array is copied when it is first read, because most callers need few of them."""

    def __init__(self, source: "Arrays | _Taken", chosen: Rows) -> None:
        self.source = source
        self.chosen = chosen

    def __getattr__(self, name: str) -> npt.NDArray[np.generic]:
        source, chosen = self.source, self.chosen
        if isinstance(source, _Taken) and name not in source.__dict__:
            taken = getattr(source.source, name).take(source.chosen[chosen], axis=-1)
        else:
            # What was copied may have changed since.
            taken = getattr(source, name).take(chosen, axis=-1)
        setattr(self, name, taken)
        return cast("npt.NDArray[np.generic]", taken)

    def take(self, rows: Rows) -> "_Taken":
        return _Taken(self, rows)

    def cells(self, flat: Rows) -> "_Cells":
        return _Cells(self, flat)


class _Cells:
    """Some cells of a bundle, as one row of columns."""

    def __init__(self, source: "Arrays | _Taken", flat: Rows) -> None:
        self.source = source
        self.flat = flat

    def __getattr__(self, name: str) -> npt.NDArray[np.generic]:
        taken = getattr(self.source, name).reshape(-1)[self.flat][np.newaxis]
        setattr(self, name, taken)
        return cast("npt.NDArray[np.generic]", taken)


@dataclass(slots=True)
class Arrays:
    """Base: a bundle of arrays whose last axis is the node row."""

    def copy(self) -> Self:
        """Return a bundle that shares nothing with this one."""
        return type(self)(**{each.name: getattr(self, each.name).copy() for each in fields(self)})

    def take(self, rows: Rows) -> Self:
        """Return the bundle of these rows, in this order."""
        return cast("Self", _Taken(self, rows))

    def cells(self, flat: Rows) -> Self:
        """Return the bundle of these cells (flat numbers), shaped (1, cell). It has no arrays per row."""
        return cast("Self", _Cells(self, flat))

    def grown(self, devices: int, rows: int) -> Self:
        """Return a copy with room for more device positions and node rows; new cells are 0."""
        return type(self)(
            **{each.name: _padded(getattr(self, each.name), devices, rows, each) for each in fields(self)}
        )

    def clear(self, row: int) -> None:
        """Set every cell of a row to 0."""
        for each in fields(self):
            getattr(self, each.name)[..., row] = 0


@dataclass(slots=True)
class NodeArrays(Arrays):
    """What nodes say of their cards. Slots int32, memory (MiB) and cores int64, shaped (device, row); some (row,)."""

    slots: Int32Array
    memory: Int64Array
    cores: Int64Array
    present: BoolArray
    """There is a card; False for padding."""
    healthy: BoolArray
    cordoned: BoolArray
    duplicated: BoolArray
    open: BoolArray
    """Present, healthy, neither cordoned nor duplicated."""
    numa: Int32Array
    index: Int32Array
    type_id: Int32Array
    mode_id: Int32Array
    uuid_id: Int64Array
    registered: BoolArray
    """(row,) The node object exists."""
    card_count: Int32Array
    """(row,) Registered cards."""
    count_allocatable: Int64Array
    """(row,) The kubelet's allocatable count of the first vendor's resource; -1 when the node does not say."""
    single_numa: BoolArray
    """(row,) All cards of a container must be of one NUMA node."""
    topology: Int32Array
    """(row,) Number of the links between the node's cards in `Snapshot.topologies`; 0: it says nothing of them."""
    cpu_milli: Int64Array
    """(row,) Allocatable CPU in thousandths; -1 when the node does not say."""
    vendor: Int32Array
    """The number of the card's vendor."""
    layout: Int32Array
    """The number of the card's MIG layout; 0: it is not in MIG mode."""
    reserved_memory: Int64Array
    """MiB beyond `memory` that nobody gets."""
    further_allocatable: Int64Array = field(metadata=_PER_VENDOR)
    """(vendor - 1, row) The same as `count_allocatable` for all other vendors."""

    @classmethod
    def zeros(cls, devices: int, rows: int, vendors: int = 1) -> Self:
        """Return arrays without any card."""
        shape = (devices, rows)
        return cls(
            slots=np.zeros(shape, np.int32),
            memory=np.zeros(shape, np.int64),
            cores=np.zeros(shape, np.int64),
            present=np.zeros(shape, np.bool_),
            healthy=np.zeros(shape, np.bool_),
            cordoned=np.zeros(shape, np.bool_),
            duplicated=np.zeros(shape, np.bool_),
            open=np.zeros(shape, np.bool_),
            numa=np.zeros(shape, np.int32),
            index=np.zeros(shape, np.int32),
            type_id=np.zeros(shape, np.int32),
            mode_id=np.zeros(shape, np.int32),
            uuid_id=np.zeros(shape, np.int64),
            registered=np.zeros(rows, np.bool_),
            card_count=np.zeros(rows, np.int32),
            count_allocatable=np.zeros(rows, np.int64),
            single_numa=np.zeros(rows, np.bool_),
            topology=np.zeros(rows, np.int32),
            cpu_milli=np.zeros(rows, np.int64),
            vendor=np.zeros(shape, np.int32),
            layout=np.zeros(shape, np.int32),
            reserved_memory=np.zeros(shape, np.int64),
            further_allocatable=np.zeros((vendors - 1, rows), np.int64),
        )


@dataclass(slots=True)
class RequestedArrays(Arrays):
    """What pods hold. Shaped (device, row); some (row,).

    Cores and counts are int64: anybody can write allocation texts, and sums of numbers near 2^31 must not wrap.
    """

    slots: Int32Array
    memory: Int64Array
    cores: Int64Array
    exclusive: Int32Array
    """Pods that hold the card exclusively."""
    holders: Int32Array
    """Pods that hold the card; a pod that is beside its own exclusive row counts twice."""
    blocks: Int32Array
    """Pods whose unreadable allocation names this card."""
    load: Int64Array
    """Fixed-point sum of used/capacity over the three dimensions, equal weights; see `card_load`. At most MAX_LOAD."""
    slices: Int32Array
    """The slices of a card in MIG mode that pods hold, or OVERLAPPING; see `accounting.mig_profiles`."""
    usable: BoolArray
    """Present, healthy, not cordoned, not blocked, not over-committed, not held exclusively, with a free slot."""
    count: Int64Array
    """(row,) Sum of the pods' peak counts of the first vendor's cards, as the kubelet counts."""
    node_blocks: Int32Array
    """(row,) Pods whose unreadable allocation names no card of this node."""
    cpu_milli: Int64Array
    """(row,) CPU that the node's pods request, in thousandths; pods without cards too."""
    further_count: Int64Array = field(metadata=_PER_VENDOR)
    """(vendor - 1, row) The same as `count` for all other vendors."""

    @classmethod
    def zeros(cls, devices: int, rows: int, vendors: int = 1) -> Self:
        """Return arrays in which nothing is held."""
        shape = (devices, rows)
        names = ("slots", "exclusive", "holders", "blocks", "slices")
        return cls(
            **{name: np.zeros(shape, np.int32) for name in names},
            memory=np.zeros(shape, np.int64),
            cores=np.zeros(shape, np.int64),
            load=np.zeros(shape, np.int64),
            usable=np.zeros(shape, np.bool_),
            count=np.zeros(rows, np.int64),
            node_blocks=np.zeros(rows, np.int32),
            cpu_milli=np.zeros(rows, np.int64),
            further_count=np.zeros((vendors - 1, rows), np.int64),
        )


def card_load(requested: tuple[int, int, int], capacity: tuple[int, int, int]) -> int:
    """Return one card's load: the sum of used/capacity over slots, memory and cores, in units of 1/FULL_LOAD, floored.

    0 if any capacity is 0. Source: HAMi v2.10 gpu_policy.go, which has the same sum as a float times 10.
    """
    slots, memory, cores = capacity
    if not (slots and memory and cores):
        return 0
    return requested[0] * FULL_LOAD // slots + requested[1] * FULL_LOAD // memory + requested[2] * FULL_LOAD // cores


def _padded(
    array: npt.NDArray[np.generic], devices: int, rows: int, declared: Field[object]
) -> npt.NDArray[np.generic]:
    shape: tuple[int, ...] = (rows,) if array.ndim == 1 else (devices, rows)
    if declared.metadata == _PER_VENDOR:
        shape = array.shape[0], rows
    grown = np.zeros(shape, array.dtype)
    grown[tuple(slice(size) for size in array.shape)] = array
    return grown
