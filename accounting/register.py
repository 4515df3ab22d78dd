"""The cards that a node registers.

Why it exists: a register that is broken, doubled or half-written must never turn into free capacity. It must not know
JSON; it takes the decoded value. Invariant: every card returned has a UUID that is unique in the node and non-negative
integer capacities; whatever is wrong is named in a problem.
Source: HAMi v2.10's register annotation; absent keys mean 0, false or "", so absent health is unhealthy.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from accounting.mig_profiles import MIG_MODE, most_cores, read_layout
from accounting.node import Device, tie_order
from accounting.selection import Tokens, contains, type_tokens
from accounting.status import Problem, ProblemCode
from accounting.vendor import NVIDIA, Vendor

_INT32_MAX = 2**31 - 1
#: Fitting packs a card's position into 7 bits. No machine comes near.
MAX_DEVICES = 128
# At most 18 digits: Python refuses to convert very long texts, and int32 needs 10.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
#: What an allocation annotation is split at, and blanks, which readers trim.
_NOT_IN_UUID = re.compile(r"[,:;\s]")
#: Register key -> default when absent.
_NUMBERS = ("index", "count", "devmem", "devcore", "numa")
_LEGACY_FIELDS = (7, 9)


@dataclass(frozen=True, slots=True)
class ReservedMemory:
    """Memory that no pod gets, for driver and contexts: (tokens of a model, MiB), see `accounting.selection`."""

    models: tuple[tuple[Tokens, int], ...] = ()

    def of(self, model: str) -> int:
        """Return the MiB held back of a card: of all models that match, the one with the most tokens decides."""
        tokens = type_tokens(model)
        matching = [(len(wanted), mebibytes) for wanted, mebibytes in self.models if contains(tokens, wanted)]
        return max(matching, default=(0, 0))[1]


@dataclass(frozen=True, slots=True)
class Register:
    """A node's cards in tie order, the UUIDs that it names more than once, and what was wrong."""

    devices: tuple[Device, ...] = ()
    duplicated: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def read_register(node: str, value: object, vendor: Vendor = NVIDIA) -> Register:
    """Read a node's decoded register annotation: a list of objects with id, index, count, devmem, devcore and so on.

    An entry that cannot be used is left out and reported; the others count. Of two entries with one UUID the first one
    counts, as a duplicated card that takes no pod.
    """
    if not isinstance(value, list):
        return unreadable(node, f"must be a list, is {type(value).__name__}")
    if len(value) > MAX_DEVICES:
        return unreadable(node, f"has {len(value)} entries, more than {MAX_DEVICES}")
    devices: dict[str, Device] = {}
    duplicated: set[str] = set()
    problems: list[Problem] = []
    for position, entry in enumerate(value):
        device = _device(entry, vendor)
        if isinstance(device, str):
            problems.append(_problem(ProblemCode.UNREADABLE_REGISTER, node, f"entry {position}: {device}"))
        elif device.uuid in devices:
            duplicated.add(device.uuid)
        else:
            devices[device.uuid] = device
    problems += [
        Problem(ProblemCode.DUPLICATE_DEVICE, f"node {node} device {uuid}", "is registered more than once on this node")
        for uuid in sorted(duplicated)
    ]
    return Register(tuple(sorted(devices.values(), key=tie_order)), frozenset(duplicated), tuple(problems))


def with_reserved(register: Register, reserved: ReservedMemory) -> Register:
    """Return a register whose cards have the reserved memory taken off, at most all that they have."""
    if not reserved.models:
        return register
    return replace(register, devices=tuple(_without(device, reserved.of(device.type)) for device in register.devices))


def _without(device: Device, mebibytes: int) -> Device:
    taken = min(mebibytes, device.memory)
    return replace(device, memory=device.memory - taken, reserved_memory=taken) if taken else device


def merge_registers(node: str, registers: Sequence[Register]) -> Register:
    """Return the cards of all vendors of one node. A UUID that two vendors register is a duplicated card."""
    if len(registers) == 1:
        return registers[0]
    devices: dict[str, Device] = {}
    duplicated = {uuid for register in registers for uuid in register.duplicated}
    problems = [problem for register in registers for problem in register.problems]
    for register in registers:
        if len(devices) + len(register.devices) > MAX_DEVICES:
            why = (
                f"has more than {MAX_DEVICES} cards of all vendors; those of {register.devices[0].vendor} are left out"
            )
            problems.append(_problem(ProblemCode.UNREADABLE_REGISTER, node, why))
            continue
        for device in register.devices:
            first = devices.setdefault(device.uuid, device)
            if first is not device:
                duplicated.add(device.uuid)
                why = f"is registered by the vendors {first.vendor} and {device.vendor}"
                problems.append(Problem(ProblemCode.DUPLICATE_DEVICE, f"node {node} device {device.uuid}", why))
    return Register(tuple(sorted(devices.values(), key=tie_order)), frozenset(duplicated), tuple(problems))


def unreadable(node: str, why: str) -> Register:
    """Return a register without cards for an annotation that cannot be read at all."""
    return Register(problems=(_problem(ProblemCode.UNREADABLE_REGISTER, node, why),))


def decode_legacy_register(text: str) -> list[dict[str, object]] | str:
    """Read the legacy text form: records of 7 or 9 comma fields, each ended by `:`. Returns why on failure.

    Fields: uuid, count, memory MiB, cores, type, numa, health and, with 9, index and mode.
    """
    if ":" not in text:
        return "has no ':'"
    entries: list[dict[str, object]] = []
    for record in filter(None, text.split(":")):
        fields = record.split(",")
        if len(fields) not in _LEGACY_FIELDS:
            return f"record {record!r} has {len(fields)} fields, not 7 or 9"
        uuid, count, memory, cores, model, numa, health, index, mode = (*fields, "0", "hami-core")[:9]
        numbers = (count, memory, cores, numa, index)
        if not all(map(_INTEGER.fullmatch, numbers)) or health not in ("true", "false"):
            return f"record {record!r} has a bad number or boolean"
        if int(index) < 0:
            return f"record {record!r} has a negative index"
        entries.append(
            {"id": uuid, "index": int(index), "count": int(count), "devmem": int(memory), "devcore": int(cores)}
            | {"type": model, "numa": int(numa), "mode": mode, "health": health == "true"}
        )
    return entries


def encode_legacy_register(devices: Iterable[Device]) -> str:
    """Return the legacy text form, always with 9 fields."""
    return "".join(
        f"{d.uuid},{d.slots},{d.memory},{d.cores},{d.type},{d.numa},{str(d.healthy).lower()},{d.index},{d.mode}:"
        for d in devices
    )


def _device(entry: object, vendor: Vendor) -> Device | str:
    if not isinstance(entry, Mapping):
        return f"must be an object, is {type(entry).__name__}"
    uuid = entry.get("id")
    if not isinstance(uuid, str) or not uuid:
        return f"id: {uuid!r}: must be a card's UUID"
    if _NOT_IN_UUID.search(uuid):
        return f"id: {uuid!r}: must not hold ',', ':', ';' or blanks, which no allocation could carry"
    layout = read_layout(entry.get("migProfiles")) if entry.get("mode") == MIG_MODE else ()
    if isinstance(layout, str):
        return f"migProfiles of {uuid}: {layout}"
    for key in ("type", "mode"):
        if not isinstance(entry.get(key) or "", str):
            return f"{key} of {uuid}: {entry[key]!r}: must be text"
    if not isinstance(entry.get("health") or False, bool):
        return f"health of {uuid}: {entry['health']!r}: must be true or false"
    numbers = {key: entry.get(key) or 0 for key in _NUMBERS}
    for key, number in numbers.items():
        if type(number) is not int or not 0 <= number <= _INT32_MAX:
            return f"{key} of {uuid}: {number!r}: must be an integer from 0 to {_INT32_MAX}"
    return Device(
        uuid=uuid,
        index=numbers["index"],
        slots=numbers["count"],
        memory=numbers["devmem"],
        # The cores of profiles are rounded up, so those of a full card add up to more than the card.
        cores=max(vendor.registered_cores or numbers["devcore"], most_cores(layout)),
        numa=numbers["numa"],
        type=entry.get("type") or "",
        mode=entry.get("mode") or "",
        healthy=bool(entry.get("health")),
        vendor=vendor.key,
        layout=layout,
    )


def _problem(code: ProblemCode, node: str, message: str) -> Problem:
    return Problem(code, f"node {node}", message)
