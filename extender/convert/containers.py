"""From a pod's containers to what they ask for, what the API server charges for them, and their CPU.

It must not do I/O. Invariant: what is remembered of a container is a function of its name, its kind and its resources
as written, so remembering changes no answer. Replicas have equal texts, so the containers of most pods are read once.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from accounting.container_resources import (
    ContainerResources,
    charged_amount,
    container_charge,
    container_requests,
    pod_charge,
)
from accounting.pod import Container, ContainerKind
from accounting.status import Invalid
from accounting.vendor import Vendor
from extender.convert.cpu import container_cpu_milli, containers_cpu_milli, cpu_milli_of
from extender.convert.resources import Amounts, Requested, raw_of, raw_requests, requested_by
from extender.wire import core_v1, watched

#: What the API server charges, by resource name.
Charge = tuple[tuple[str, int], ...]
#: A container's kind and its charge; empty if it asks for no managed resource.
_Charged = tuple[tuple[int, Charge], ...]
#: All quantities of a container as written: names and values of the limits, and of the requests.
_Written = tuple[tuple[tuple[str, object], ...], tuple[tuple[str, object], ...]]
_NOTHING: _Written = ((), ())
#: Name, kind and resources as JSON of each container of a pod, init containers first.
_Texts = tuple[tuple[str, int, bytes], ...]
#: Numbers of the kinds in keys of remembered results, because hashing a member of an Enum is slow.
_KINDS = (ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP)
_INIT, _SIDECAR, _APP = range(3)
_LISTS = ("initContainers", "initContainers", "containers")
_REMEMBERED = 16_384
_REMEMBERED_PODS = 4_096
#: Longer ones are read each time. A container that asks for cards has a few hundred bytes, but an object may have more
#: than a million, and what is remembered must fit in memory.
_LONGEST_REMEMBERED_BYTES = 4_096
_MOST_REMEMBERED_RESOURCES = 64
_MOST_REMEMBERED_CONTAINERS = 32


class PodContainers(NamedTuple):
    """The result for all containers of a pod."""

    containers: tuple[Container, ...]
    """Init containers first, in spec order."""
    charge: Charge
    invalid: tuple[Invalid, ...]
    cpu_milli: int
    requested: tuple[Requested, ...] = ()
    """What kube-scheduler counts for each container."""
    raw: Amounts = ()
    """What they request of raw keys, together."""


class _Said(NamedTuple):
    """The result for one container."""

    container: Container
    invalid: tuple[Invalid, ...]
    charged: _Charged
    cpu_milli: int
    requested: Requested
    raw: Amounts


def _of_pod(spec: watched.AnyPodSpec, said: Sequence[_Said], names: tuple[str, ...]) -> PodContainers:
    """Return the result for a pod from that for each container. `names`: of the managed resources."""
    overhead = _overhead_charge(spec.overhead, names) if spec.overhead else ()
    own = _together(said, [each.restartPolicy == "Always" for each in spec.initContainers or ()], overhead)
    return own._replace(cpu_milli=cpu_milli_of(spec, [each.cpu_milli for each in said]))


def _together(said: Sequence[_Said], are_sidecars: Sequence[bool], overhead: Charge = ()) -> PodContainers:
    """Return the result for a pod from that for each container. `are_sidecars`: which of the init containers."""
    if not said:
        return PodContainers((), (), (), 0)
    containers, invalid, charged, cpu_milli, requested, raw = zip(*said, strict=True)
    return PodContainers(
        containers,
        (_charge if len(said) <= _MOST_REMEMBERED_CONTAINERS else _charge.__wrapped__)(charged, overhead),
        tuple(each for refused in invalid for each in refused),
        containers_cpu_milli(cpu_milli, are_sidecars),
        requested,
        raw_requests(requested, raw) if any(raw) else (),
    )


def _texts(spec: watched.PodSpec) -> _Texts:
    apps = [(each.name or "", _APP, bytes(each.resources)) for each in spec.containers or ()]
    if not spec.initContainers:
        return tuple(apps)
    inits = [
        (each.name or "", _SIDECAR if each.restartPolicy == "Always" else _INIT, bytes(each.resources))
        for each in spec.initContainers
    ]
    return (*inits, *apps)


def _keep(kept: OrderedDict[_Texts, PodContainers], texts: _Texts, made: PodContainers) -> PodContainers:
    """Keep the result for a pod if its texts are short; the one that was kept first makes room."""
    if len(texts) > _MOST_REMEMBERED_CONTAINERS:
        return made
    if sum(len(name) + len(text) for name, _, text in texts) <= _LONGEST_REMEMBERED_BYTES:
        kept[texts] = made
        if len(kept) > _REMEMBERED_PODS:
            kept.popitem(last=False)
    return made


def _said_by_values(spec: core_v1.PodSpec, read: Callable[[str, int, core_v1.Resources | None], _Said]) -> list[_Said]:
    said = [
        read(each.name or "", _SIDECAR if each.restartPolicy == "Always" else _INIT, each.resources)
        for each in spec.initContainers or ()
    ]
    said += [read(each.name or "", _APP, each.resources) for each in spec.containers or ()]
    return said


@lru_cache(maxsize=16)
def container_reader(
    vendors: tuple[Vendor, ...], raw_keys: tuple[str, ...] = ()
) -> Callable[[watched.AnyPodSpec], PodContainers]:
    """Return what reads a pod's containers; it raises `msgspec.DecodeError` for resources that do not decode."""
    names = tuple(name for vendor in vendors for name in vendor.resources)

    def read(name: str, kind: int, written: _Written) -> _Said:
        limits, requests = map(dict, written)
        resources, field = core_v1.Resources(limits, requests), f"spec.{_LISTS[kind]}[{name}].resources"
        container, invalid, charged = _cards_of(name, kind, _managed(limits, requests, names), field, vendors)
        raw, misread = raw_of(resources, raw_keys, field) if raw_keys else ((), ())
        requested = requested_by(_KINDS[kind], resources)
        return _Said(container, (*invalid, *misread), charged, container_cpu_milli(resources), requested, raw)

    remembered = lru_cache(maxsize=_REMEMBERED)(read)

    def of_values(name: str, kind: int, resources: core_v1.Resources | None) -> _Said:
        written = _NOTHING if resources is None else _written(resources)
        return (remembered if _may_be_key(written) else read)(name, kind, written)

    def of_text(name: str, kind: int, text: bytes) -> _Said:
        is_short = len(name) + len(text) <= _LONGEST_REMEMBERED_BYTES
        return (remembered_text if is_short else read_text)(name, kind, text)

    def read_text(name: str, kind: int, text: bytes) -> _Said:
        return of_values(name, kind, watched.read_resources(text))

    def of_texts(texts: _Texts) -> PodContainers:
        found = kept.get(texts)
        return found if found is not None else _keep(kept, texts, read_texts(texts))

    def read_texts(texts: _Texts) -> PodContainers:
        inits = [kind == _SIDECAR for _, kind, _ in texts if kind != _APP]
        return _together([of_text(*each) for each in texts], inits)

    remembered_text = lru_cache(maxsize=_REMEMBERED)(read_text)
    # Looked up without regard to lengths, which takes less than a pod's containers to add up.
    kept: OrderedDict[_Texts, PodContainers] = OrderedDict()

    def of_spec(spec: watched.AnyPodSpec) -> PodContainers:
        if not isinstance(spec, watched.PodSpec):
            return _of_pod(spec, _said_by_values(spec, of_values), names)
        texts = _texts(spec)
        if spec.overhead or spec.resources is not None:
            return _of_pod(spec, [of_text(*each) for each in texts], names)
        return of_texts(texts)

    return of_spec


def _written(resources: core_v1.Resources) -> _Written:
    limits, requests = resources.limits, resources.requests
    return tuple(limits.items()) if limits else (), tuple(requests.items()) if requests else ()


def _may_be_key(written: _Written) -> bool:
    """Whether these quantities may be a key: all are text, as an API server writes them, and they are not many.

    Only of texts do equal keys mean equal values.
    """
    if len(written[0]) + len(written[1]) > _MOST_REMEMBERED_RESOURCES:
        return False
    for part in written:
        for _, value in part:
            if value.__class__ is not str:
                return False
    return True


def _managed(limits: core_v1.Quantities, requests: core_v1.Quantities, names: tuple[str, ...]) -> ContainerResources:
    """Return the managed resources as written, in the order of their names."""
    return ContainerResources(
        *({name: each[name] for name in names if each.get(name) is not None} for each in (limits, requests))
    )


def _cards_of(
    name: str, kind: int, resources: ContainerResources, field: str, vendors: tuple[Vendor, ...]
) -> tuple[Container, tuple[Invalid, ...], _Charged]:
    """Return a container, what is invalid in its managed resources, and their charge. `field`: of its resources."""
    if not (resources.limits or resources.requests):
        return Container(name, _KINDS[kind]), (), ()
    requests, invalid = container_requests(resources, vendors, field)
    first = requests[0] if requests else None
    container = Container(name, _KINDS[kind], first, requests[1:], bool(invalid))
    return container, invalid, ((kind, container_charge(resources, *vendors)),)


@lru_cache(maxsize=_REMEMBERED)
def _charge(charged: tuple[_Charged, ...], overhead: Charge) -> Charge:
    """Return a pod's charge, from the charges of its containers."""
    return pod_charge([(_KINDS[kind], charge) for each in charged for kind, charge in each], overhead)


def _overhead_charge(overhead: core_v1.Quantities, names: tuple[str, ...]) -> Charge:
    return tuple((name, charged_amount(overhead[name])) for name in names if name in overhead)
