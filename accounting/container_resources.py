"""What a container asks of a vendor's cards, read from its resources.

Why it exists: limits and requests, canonical quantities, factors and defaults become one DeviceRequest here, and what
cannot be used becomes an Invalid that names the field and the value. It must not know cards. Invariant: a request
that is returned has a positive count and either memory or a percentage, cores 0..100. Source: HAMi v2.10
GenerateResourceRequests. It differs where HAMi silently turns a bad value into "no request" or another number:
percentages outside 0..100 and unusable memory are refused here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from accounting.errors import QuantityError
from accounting.holdings import EXCLUSIVE_CORES, peak_and_steady
from accounting.pod import ContainerKind, DeviceRequest
from accounting.quantity import Quantity, parse_quantity
from accounting.status import Invalid
from accounting.vendor import Vendor

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_MEBI = 2**20
#: Of one resource for one container; 10^13 MiB are far beyond every cluster.
_MOST_CHARGED = 2**43
_WHOLE_PERCENT = 100

Quantities = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """A container's resources as written: name -> quantity as a JSON string or number."""

    limits: Quantities = field(default_factory=dict)
    requests: Quantities = field(default_factory=dict)


def container_request(
    resources: ContainerResources, vendor: Vendor, path: str
) -> tuple[DeviceRequest | None, tuple[Invalid, ...]]:
    """Return what one container asks for, and every value in it that cannot be used.

    `path` is where its resources stand, e.g. "spec.containers[main].resources". Limits are read first, then requests;
    0 means not asked. With an invalid value the request is None.
    """
    reader = _Reader(resources, path)
    count = reader.integer(vendor.count_resource, _INT32_MAX)
    memory = reader.memory(vendor)
    percentage = reader.percentage(vendor.memory_percentage_resource)
    cores = reader.integer(vendor.cores_resource, _INT64_MAX)
    if count and not reader.invalid:
        reader.check_managed(vendor, count, memory)
    if reader.invalid or not count:
        return None, tuple(reader.invalid)
    cores = _cores(vendor, count, memory, cores)
    if vendor.slots_only:
        return DeviceRequest(count, 0, 0, cores, vendor=vendor.key), ()
    if not memory and not percentage:
        memory = vendor.default_memory_mib
    whole = not memory and not percentage
    share = 0 if memory else percentage or _WHOLE_PERCENT
    return DeviceRequest(count, memory or 0, share, cores, whole, vendor.key, vendor.one_size_per_card), ()


def _cores(vendor: Vendor, count: int, memory: int | None, asked: int | None) -> int:
    """Return the cores of a request, 0..100."""
    if vendor.cores_of_memory_mib:
        mebibytes = memory or vendor.default_memory_mib
        return min(mebibytes * _WHOLE_PERCENT // vendor.cores_of_memory_mib, EXCLUSIVE_CORES)
    if count > 1 and vendor.several_take_all:
        return EXCLUSIVE_CORES
    return min(vendor.default_cores if asked is None else asked, EXCLUSIVE_CORES)


def _rounded_up(vendor: Vendor, mebibytes: int) -> int:
    """Return the memory of the smallest template that is large enough, else of the largest."""
    if not mebibytes or not vendor.templates:
        return mebibytes
    return next((each.memory for each in vendor.templates if each.memory >= mebibytes), vendor.templates[-1].memory)


def container_requests(
    resources: ContainerResources, vendors: Sequence[Vendor], path: str
) -> tuple[tuple[DeviceRequest, ...], tuple[Invalid, ...]]:
    """Return what one container asks of the cards of each vendor, in the vendors' order, and what cannot be used."""
    read = [container_request(resources, vendor, path) for vendor in vendors]
    requests = tuple(request for request, _ in read if request is not None)
    return requests, tuple(invalid for _, refused in read for invalid in refused)


def api_charge(
    containers: list[tuple[ContainerKind, ContainerResources]], overhead: Quantities, *vendors: Vendor
) -> tuple[tuple[str, int], ...]:
    """Return what the API server's quota charges for a pod, per managed resource name.

    The order-aware sum of the requests as written (limits where no request is given), plus overhead; not multiplied by
    the count. Source: upstream quota evaluator, `requests.<name>` of extended resources. Unreadable values count 0.
    """
    charges = [(kind, container_charge(resources, *vendors)) for kind, resources in containers]
    names = [name for vendor in vendors for name in vendor.resources]
    return pod_charge(charges, tuple((name, charged_amount(overhead[name])) for name in names if name in overhead))


def container_charge(resources: ContainerResources, *vendors: Vendor) -> tuple[tuple[str, int], ...]:
    """Return what is charged for one container, per resource name."""
    names = [name for vendor in vendors for name in vendor.resources]
    written = ((name, resources.requests.get(name, resources.limits.get(name))) for name in names)
    return tuple((name, charged_amount(raw)) for name, raw in written if raw is not None)


def pod_charge(
    containers: Iterable[tuple[ContainerKind, Iterable[tuple[str, int]]]], overhead: Iterable[tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    """Return `api_charge` from the charges of the containers and of the overhead."""
    peak, _ = peak_and_steady((kind, [(name, (amount,)) for name, amount in charge]) for kind, charge in containers)
    charge = {name: amounts[0] for name, amounts in peak.items()}
    for name, amount in overhead:
        charge[name] = charge.get(name, 0) + amount
    return tuple(sorted(charge.items()))


def charged_amount(raw: object) -> int:
    """Return the integer that a quantity is charged as. Sums over a million pods stay within 64 bits."""
    try:
        return max(-_MOST_CHARGED, min(parse_quantity(raw).value(), _MOST_CHARGED))
    except QuantityError:
        return 0


class _Reader:
    """Reads single resources of one container and collects what is wrong."""

    def __init__(self, resources: ContainerResources, path: str) -> None:
        self._resources = resources
        self._path = path
        self.invalid: list[Invalid] = []

    def integer(self, name: str, maximum: int) -> int | None:
        """Return a whole number from 0 to `maximum`, None if the resource is not given or invalid."""
        found = self._quantity(name)
        if found is None:
            return None
        where, raw, quantity = found
        if not quantity.is_integer:
            self._refuse(where, raw, "must be an integer")
            return None
        if not 0 <= quantity.value() <= maximum:
            self._refuse(where, raw, "must not be negative" if quantity.nano < 0 else "is too large")
            return None
        return quantity.value()

    def percentage(self, name: str) -> int | None:
        """Return a percentage from 0 to 100."""
        found = self._quantity(name)
        if found is None:
            return None
        where, raw, quantity = found
        if not quantity.is_integer or not 0 <= quantity.value() <= _WHOLE_PERCENT:
            self._refuse(where, raw, "must be an integer between 0 and 100")
            return None
        return quantity.value()

    def memory(self, vendor: Vendor) -> int | None:
        """Return MiB per card, the vendor's factor applied."""
        found = self._quantity(vendor.memory_resource)
        if found is None:
            return None
        where, raw, quantity = found
        factor = max(vendor.memory_factor, 1)
        largest = vendor.largest_memory_mib or _INT32_MAX
        if quantity.nano < 0:
            self._refuse(where, raw, "must not be negative")
            return None
        if not quantity.is_integer or quantity.value() * factor > largest:
            self._refuse(where, raw, _memory_hint(quantity, factor, largest))
            return None
        return _rounded_up(vendor, quantity.value() * factor)

    def check_managed(self, vendor: Vendor, count: int, memory: int | None) -> None:
        """Refuse what this vendor's own scheduling would have to decide."""
        name, text = vendor.count_resource, str(count)
        if count > 1 and vendor.one_card_only:
            self._refuse(f"{self._path}.limits[{name}]", text, "several cards are chosen by their links, not managed")
        if count > 1 and vendor.several_only_whole and memory and memory != vendor.templates[-1].memory:
            self._refuse(f"{self._path}.limits[{name}]", text, "several cards must be asked for whole")
        unmanaged = self._quantity(vendor.unmanaged_resource) if vendor.unmanaged_resource else None
        if unmanaged is not None:
            self._refuse(unmanaged[0], unmanaged[1], "this way of sharing a card is not managed")

    def _quantity(self, name: str) -> tuple[str, object, Quantity] | None:
        """Return where the resource stands, how it is written, and its value; limits win over requests."""
        if not name:
            return None
        read = {}
        for list_name, quantities in (("limits", self._resources.limits), ("requests", self._resources.requests)):
            if name not in quantities:
                continue
            where = f"{self._path}.{list_name}[{name}]"
            try:
                read[where] = quantities[name], parse_quantity(quantities[name])
            except QuantityError as error:
                self._refuse(where, quantities[name], str(error))
                return None
        if not read:
            return None
        (where, (raw, quantity)), *others = read.items()
        for other_where, (other_raw, other) in others:
            if other != quantity:
                self._refuse(other_where, other_raw, f"must equal the limit {raw}")
                return None
        return where, raw, quantity

    def _refuse(self, where: str, raw: object, why: str) -> None:
        shown = "an integer of very many digits" if _is_huge(raw) else str(raw)
        self.invalid.append(Invalid(where, shown if len(shown) <= 120 else shown[:117] + "...", why))  # noqa: PLR2004


def _is_huge(raw: object) -> bool:
    """Whether Python would refuse to print the value: it prints at most 4300 digits."""
    return isinstance(raw, int) and raw.bit_length() > 2**12


def _memory_hint(quantity: Quantity, factor: int, largest: int) -> str:
    unit = "MiB" if factor == 1 else f"{factor} MiB"
    bytes_per_unit = _MEBI * factor
    whole_units, rest = divmod(quantity.value(), bytes_per_unit)
    if quantity.is_integer and not rest and whole_units * factor <= largest:
        return f"unit is {unit}, write {whole_units}"
    return f"must be an integer number of {unit}" + (f" up to {largest // factor}" if quantity.is_integer else "")
