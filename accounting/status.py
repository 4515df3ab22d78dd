"""Outcome values: why a pod does not fit a node, and what is wrong with an object.

Why it exists: an expected refusal is data with numbers, not an exception and not a text. It must not know the wire's
texts, which are made at the edge. Invariant: the codes and their spelling are an interface; they never change.
"""

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """Why a node does not take a pod."""

    NODE_UNKNOWN = "NodeUnknown"
    NO_DEVICES = "NoDevices"
    INSUFFICIENT_DEVICES = "InsufficientDevices"
    INSUFFICIENT_NODE_COUNT = "InsufficientNodeCount"
    INSUFFICIENT_SLOTS = "InsufficientSlots"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    INSUFFICIENT_CORES = "InsufficientCores"
    EXCLUSIVE_CONFLICT = "ExclusiveConflict"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    DEVICE_CORDONED = "DeviceCordoned"
    DEVICE_BLOCKED = "DeviceBlocked"
    DEVICE_OVERCOMMITTED = "DeviceOvercommitted"
    TYPE_MISMATCH = "TypeMismatch"
    UUID_MISMATCH = "UUIDMismatch"
    NUMA_MISMATCH = "NUMAMismatch"
    MODE_MISMATCH = "ModeMismatch"
    QUOTA_EXCEEDED = "QuotaExceeded"
    ALLOCATION_UNREADABLE = "AllocationUnreadable"
    INVALID_REQUEST = "InvalidRequest"
    SEARCH_LIMIT = "SearchLimit"


#: A code's position is its number in code arrays.
CODES: tuple[Code, ...] = tuple(Code)
CODE_NUMBER: dict[Code, int] = {code: number for number, code in enumerate(CODES)}


class ProblemCode(StrEnum):
    """What is wrong with an object that accounting has read."""

    UNDECODABLE_ALLOCATION = "UndecodableAllocation"
    AMBIGUOUS_ALLOCATION = "AmbiguousAllocation"
    MISSING_ALLOCATION = "MissingAllocation"
    ORPHANED_DEVICE = "OrphanedDevice"
    UNHEALTHY_DEVICE = "UnhealthyDevice"
    DUPLICATE_DEVICE = "DuplicateDevice"
    OVERCOMMITTED = "Overcommitted"
    UNREADABLE_REGISTER = "UnreadableRegister"
    UNKNOWN_QUOTA_KEY = "UnknownQuotaKey"
    UNREADABLE_BUDGET = "UnreadableBudget"
    UNREADABLE_VIRTUAL_MACHINE = "UnreadableVirtualMachine"
    UNKNOWN_RAW_KEY = "UnknownRawKey"
    RAW_OVERCOMMITTED = "RawOvercommitted"
    LOST_HOLDS = "LostHolds"
    UNMAPPED_DEVICE = "UnmappedDevice"
    UNSEEN_RESOURCE = "UnseenResource"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One finding: its code, the object ("pod ns/name", "node n1", "node n1 device GPU-a") and the facts."""

    code: ProblemCode
    object: str
    message: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """A value that cannot be used: the field, the value as given, and why."""

    field: str
    value: str
    why: str

    def __str__(self) -> str:
        return f"{self.field}: {self.value}: {self.why}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one node refuses: a code, the numbers as text, and the cards (UUIDs) concerned."""

    code: Code
    message: str
    devices: tuple[str, ...] = ()
