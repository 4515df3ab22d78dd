"""Reading one ResourceQuota object: which keys limit something here, how much, and what the others probably mean.

Why it exists: Kubernetes accepts a misspelt key without effect and without a message, so its author believes in a limit
that does not exist. It must not know usage. Invariant: a key that means a managed resource either limits it or is a
problem that says what to write instead. Source: HAMi v2.10 reads `limits.<memory>` and `limits.<cores>`; Kubernetes
itself enforces only `requests.<name>` of extended resources, so both spellings count here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accounting.errors import QuantityError
from accounting.quantity import parse_quantity
from accounting.quota_scope import Selector
from accounting.status import Problem, ProblemCode
from accounting.vendor import Vendor

_LIMITS, _REQUESTS = "limits.", "requests."
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_MEBI = 2**20
_NANO = 10**9
_LONGEST = 120


@dataclass(frozen=True, slots=True)
class Quota:
    """One ResourceQuota object's limits on managed resources, by resource name; memory in MiB."""

    namespace: str
    name: str
    hard: Mapping[str, int]
    selector: Selector = ()
    """Which of the namespace's pods it counts."""
    enforced_by_api: frozenset[str] = frozenset()
    """The resources among `hard` that it limits as `requests.<name>`, which the API server enforces as well."""
    problems: tuple[Problem, ...] = ()


def managed_resources(vendor: Vendor) -> tuple[str, str, str]:
    """Return the resource names that quotas may limit, in the order of a total's numbers."""
    return vendor.count_resource, vendor.memory_resource, vendor.cores_resource


def read_quota(
    namespace: str,
    name: str,
    hard: Mapping[str, object],
    vendors: Vendor | Sequence[Vendor],
    selector: Selector = (),
) -> Quota:
    """Read a ResourceQuota. What is meant for a vendor's resources and limits nothing is a problem."""
    limits: dict[str, int] = {}
    enforced: set[str] = set()
    found = []
    for key, raw in sorted(hard.items()):
        prefix, resource = _split(key)
        vendor = _meant_vendor(resource, (vendors,) if isinstance(vendors, Vendor) else vendors)
        if vendor is None:
            continue
        why = _why_unknown(prefix, resource, vendor)
        limit = None if why else _limit(raw)
        if limit is None:
            found.append(f"spec.hard[{key}]: {_shown(raw)}: {why or 'is not a quantity of at least 0'}")
            continue
        if hint := _unit_hint(resource, limit, vendor):
            found.append(f"spec.hard[{key}]: {_shown(raw)}: {hint}")
        limit = min(limit * _factor(resource, vendor), _INT64_MAX)
        limits[resource] = min(limit, limits.get(resource, limit))
        if prefix == _REQUESTS:
            enforced.add(resource)
    if limits:
        found += [f"scope {each}: {why}, so the quota limits nothing" for each in selector if (why := each.unreadable)]
    problems = tuple(
        Problem(ProblemCode.UNKNOWN_QUOTA_KEY, f"resourcequota {namespace}/{name}", text) for text in found
    )
    return Quota(namespace, name, limits, selector, frozenset(enforced), problems)


def _split(key: str) -> tuple[str, str]:
    """Return a quota key's prefix, if it has one, and the resource."""
    prefix = next((each for each in (_LIMITS, _REQUESTS) if key.startswith(each)), "")
    return prefix, key.removeprefix(prefix)


def _meant_vendor(resource: str, vendors: Sequence[Vendor]) -> Vendor | None:
    """Return the vendor that a key is about: the one that has the resource, else one that it may be misspelt for."""
    owners = [vendor for vendor in vendors if resource in vendor.resources]
    return next(iter(owners), None) or next((each for each in vendors if _is_meant(resource, each)), None)


def _is_meant(resource: str, vendor: Vendor) -> bool:
    """Whether a key is about this vendor's resources, perhaps misspelt: `request.nvidia.com/gpu`, `gpumem`."""
    domain, _, name = resource.lower().rpartition("/")
    own = vendor.count_resource.partition("/")[0]
    unmistakable = {each.rpartition("/")[2] for each in vendor.resources} - {vendor.count_resource.rpartition("/")[2]}
    return domain == own or domain.endswith(f".{own}") or (not domain and name in unmistakable)


def _why_unknown(prefix: str, resource: str, vendor: Vendor) -> str:
    """Return why a key limits nothing; empty if it limits something."""
    managed = managed_resources(vendor)
    if resource and resource in managed:
        return "" if prefix else f"needs a prefix, write {_REQUESTS}{resource} or {_LIMITS}{resource}"
    if resource == vendor.memory_percentage_resource:
        return f"percentages are charged as memory, limit {_REQUESTS}{vendor.memory_resource}"
    return f"names nothing that is managed, so it limits nothing; managed are {', '.join(filter(None, managed))}"


def _limit(raw: object) -> int | None:
    """Return the largest whole number within a limit: 2.5 cards let in two."""
    try:
        quantity = parse_quantity(raw)
    except QuantityError:
        return None
    return quantity.nano // _NANO if quantity.nano >= 0 else None


def _shown(raw: object) -> str:
    """Return a value as written, shortened if it is too long to read or for Python to print."""
    if isinstance(raw, int) and raw.bit_length() > _LONGEST:
        return "an integer of very many digits"
    return str(raw)[:_LONGEST]


def _factor(resource: str, vendor: Vendor) -> int:
    return max(vendor.memory_factor, 1) if resource == vendor.memory_resource else 1


def _unit_hint(resource: str, limit: int, vendor: Vendor) -> str:
    """Return what was probably meant by memory in bytes, which limits nothing in practice."""
    factor = _factor(resource, vendor)
    units, rest = divmod(limit, _MEBI * factor)
    if resource != vendor.memory_resource or rest or not units or units * factor > _INT32_MAX:
        return ""
    unit = "MiB" if factor == 1 else f"{factor} MiB"
    return f"unit is {unit}, so this is {limit} of them; for the memory that is probably meant write {units}"
