"""What /mutate adds to a pod: the scheduler's name, and what HAMi's webhook fills in.

Why it exists: a pod that asks for a share must reach the scheduler that can give it one, and defaults must be visible
in the pod. It must not deny; `validating` does, because it sees the pod after all other webhooks have changed it.
Invariants: a pod that needs nothing gets no operation; a mutated pod needs nothing more, so the API server may ask
again (reinvocationPolicy IfNeeded). Source: HAMi v2.10 MutateAdmission. It differs in that 0 means "not requested" for
memory and percentage.
"""

from collections.abc import Iterator
from typing import Any

from accounting.vendor import Vendor
from extender.admission.settings import DEFAULT_SCHEDULER, AdmissionSettings, OtherScheduler
from extender.admission.written_resources import Written, containers, quantity
from extender.wire.admission_v1 import PodObject

Operation = dict[str, Any]

_WHOLE_CARD = 100


def scheduler_is_ours(pod: PodObject, settings: AdmissionSettings) -> bool:
    """Whether a pod has, or is to get, our scheduler's name."""
    name = pod.more.schedulerName or ""
    if name in ("", settings.scheduler_name):
        return True
    if name == DEFAULT_SCHEDULER:
        return settings.replace_default_scheduler
    return settings.other_scheduler is OtherScheduler.REPLACE


def mutate(pod: PodObject, vendors: tuple[Vendor, ...], settings: AdmissionSettings) -> list[Operation]:
    """Return the JSON patch operations that a pod needs."""
    asking = [each for each in containers(pod) if any(map(each.asks_of, vendors))]
    if not asking or not scheduler_is_ours(pod, settings):
        return []
    operations = [operation for each in asking for operation in _completed(each, vendors, settings)]
    if settings.runtime_class and not pod.more.runtimeClassName:
        operations.append(_add("/spec/runtimeClassName", settings.runtime_class))
    if pod.more.schedulerName != settings.scheduler_name:
        operations.append(_add("/spec/schedulerName", settings.scheduler_name))
    return operations


def _completed(written: Written, vendors: tuple[Vendor, ...], settings: AdmissionSettings) -> Iterator[Operation]:
    """Yield the operations that one container needs."""
    for vendor in vendors:
        yield from _priority(written, vendor)
    missing = {
        name: value for vendor in vendors for name, value in _missing_limits(written, vendor, settings.default_count)
    }
    resources = written.container.resources
    if not missing or resources is None:
        return
    path = f"{written.path}/resources/limits"
    if resources.limits is None:
        yield _add(path, missing)
        return
    for name, value in missing.items():
        # In a JSON pointer "~" and "/" are written "~0" and "~1".
        yield _add(f"{path}/{name.replace('~', '~0').replace('/', '~1')}", value)


def _missing_limits(written: Written, vendor: Vendor, default_count: int) -> Iterator[tuple[str, str]]:
    """Yield the missing limits of one vendor's resources in a container, and their values."""
    others = [name for name in vendor.resources if name != vendor.count_resource]
    count = written.value(vendor.count_resource)
    if count is None and default_count and any(map(written.asks, others)):
        count = str(default_count)
        yield vendor.count_resource, count
    if count is not None and _equals(count, 0):
        return
    if count is not None and _wants_whole_cards(written, vendor):
        yield vendor.cores_resource, str(_WHOLE_CARD)


def _priority(written: Written, vendor: Vendor) -> Iterator[Operation]:
    """Yield the variable that tells a container's priority to the library in it, unless it is set."""
    value, name = written.limits.get(vendor.priority_resource), vendor.priority_variable
    if value is None or not name or not written.asks_of(vendor):
        return
    variables = written.more.env
    if any(each.name == name for each in variables or ()):
        return
    variable = {"name": name, "value": str(value)}
    yield _add(f"{written.path}/env/-", variable) if variables is not None else _add(f"{written.path}/env", [variable])


def _wants_whole_cards(written: Written, vendor: Vendor) -> bool:
    """Whether only whole cards can be meant, shared with no other pod. Written cores are never changed."""
    if not vendor.bare_count_is_exclusive or written.value(vendor.cores_resource) is not None:
        return False
    if written.asks(vendor.memory_percentage_resource):
        return _equals(written.value(vendor.memory_percentage_resource), _WHOLE_CARD)
    return not written.asks(vendor.memory_resource)


def _equals(raw: object, number: int) -> bool:
    read = quantity(raw)
    return read is not None and read.is_integer and read.value() == number


def _add(path: str, value: object) -> Operation:
    # "add" also replaces what is there.
    return {"op": "add", "path": path, "value": value}
