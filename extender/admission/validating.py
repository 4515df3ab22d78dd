"""Whether a pod may be created, after every other webhook has changed it.

Why it exists: a pod that could not be scheduled, or would use cards without being counted, is refused while its author
still reads the answer. It must not change anything. Invariants: every finding names the field and its value; all
findings are reported at once; a pod that the scheduler would accept is not refused.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from accounting.pod import Container, Pod
from accounting.quota import Exceeded
from accounting.vendor import Vendor
from extender.admission.decision import Finding, Why
from extender.admission.mutating import scheduler_is_ours
from extender.admission.names import near_resource
from extender.admission.settings import AdmissionSettings, OtherScheduler, Privileged
from extender.admission.written_resources import Written, is_asked, quantity
from extender.wire.admission_v1 import PodObject

_EXCLUSIVE_CORES = 100
#: The group of kubelets. NodeRestriction lets them create only mirror pods of their own node.
_NODES_GROUP = "system:nodes"
_MIRROR = "kubernetes.io/config.mirror"


def invalid_values(pod: Pod) -> Iterator[Finding]:
    """Yield the values that the scheduler could not use."""
    for invalid in pod.invalid:
        yield Finding(Why.INVALID_REQUEST, str(invalid))


def ambiguous(written: Written, vendor: Vendor) -> Iterator[Finding]:
    """Yield a finding if a container asks for a share of a card but for no card."""
    others = [name for name in vendor.resources if name != vendor.count_resource and written.asks(name)]
    count = written.value(vendor.count_resource)
    if not others or (count is not None and is_asked(count)):
        return
    part = others[0]
    field, value = written.field_of(part), written.value(part)
    if count is None:
        text = f"{field}: {value}: asks for a part of a card but for no card; set {vendor.count_resource}"
    else:
        field_of_count = written.field_of(vendor.count_resource)
        text = f"{field_of_count}: {count}: asks for no card, but {part} asks for {value} of one; leave one of them out"
    yield Finding(Why.AMBIGUOUS_REQUEST, text)


def near_misses(
    written: Written, vendors: tuple[Vendor, ...], is_advertised: Callable[[str], bool]
) -> Iterator[Finding]:
    """Yield a finding per resource whose name is close to a managed one.

    A name that some node advertises or a DeviceClass maps is not a misspelling (nvidia.com/pgpu of sandboxed
    containers).
    """
    for part, quantities in (("limits", written.limits), ("requests", written.requests)):
        for name, value in quantities.items():
            meant = near_resource(name, vendors)
            # Requests repeat the limits.
            if meant is None or not is_asked(value) or (part == "requests" and name in written.limits):
                continue
            if is_advertised(name):
                continue
            field = f"{written.field}.resources.{part}[{name}]"
            yield Finding(Why.NEAR_MISS, f"{field}: {value}: is not managed here; {meant} is probably meant")


def scheduler(pod: PodObject, settings: AdmissionSettings) -> Iterator[Finding]:
    """Yield a finding if the pod would not reach the scheduler that can give it cards."""
    name = pod.more.schedulerName or ""
    if name == settings.scheduler_name:
        return
    if scheduler_is_ours(pod, settings):
        why = (
            f"must be {settings.scheduler_name}, which places pods on shares of cards; "
            "the request was probably added after the mutating webhook had seen the pod"
        )
        yield Finding(Why.SCHEDULER_NAME, f"spec.schedulerName: {name or '(empty)'}: {why}")
    elif settings.other_scheduler is OtherScheduler.DENY:
        why = f"pods that ask for shares of cards must be scheduled by {settings.scheduler_name}"
        yield Finding(Why.SCHEDULER_NAME, f"spec.schedulerName: {name}: {why}")


def node_preset(pod: PodObject) -> Iterator[Finding]:
    """Yield a finding if the pod names its node, because then no scheduler chooses its cards."""
    if pod.spec.nodeName:
        why = "a pod on a preset node gets no cards; use nodeSelector or affinity"
        yield Finding(Why.NODE_PRESET, f"spec.nodeName: {pod.spec.nodeName}: {why}")


def is_mirror(pod: PodObject, groups: Sequence[str]) -> bool:
    """Whether this is a kubelet's mirror of a static pod. Refusing it would only hide the pod, which already runs."""
    return _NODES_GROUP in groups and _MIRROR in (pod.meta.annotations or {})


def privileged(
    containers: list[Written], more: list[str], share: Pod, settings: AdmissionSettings
) -> Iterator[Finding]:
    """Yield a finding if a privileged container is beside a share. `more`: fields of further privileged ones."""
    asking = [container for container in share.containers if container.requests]
    if not asking or settings.privileged is Privileged.ALLOW:
        return
    if settings.privileged is Privileged.EXCLUSIVE and all(map(_is_exclusive, asking)):
        return
    fields = [f"{each.field}.securityContext.privileged" for each in containers if each.is_privileged]
    for field in (*fields, *more):
        why = f"sees every card of its node, while container {asking[0].name} asks for a share"
        yield Finding(Why.PRIVILEGED, f"{field}: true: {why}")


def quotas(exceeded: Iterable[Exceeded]) -> Iterator[Finding]:
    """Yield a finding per limit that the pod would exceed."""
    for each in exceeded:
        yield Finding(Why.QUOTA_EXCEEDED, f"exceeded {each}")


def oddities(containers: list[Written], pod: PodObject, vendors: tuple[Vendor, ...]) -> Iterator[str]:
    """Yield warnings about what is allowed but probably not meant."""
    for vendor in vendors:
        for each in containers:
            yield from _odd_container(each, vendor)
        for name in vendor.resources:
            raw = (pod.spec.overhead or {}).get(name)
            if raw is not None and is_asked(raw):
                yield f"spec.overhead[{name}]: {raw}: belongs to no container, so no card is given for it"


def _odd_container(written: Written, vendor: Vendor) -> Iterator[str]:
    memory, percentage = vendor.memory_resource, vendor.memory_percentage_resource
    if written.asks(memory) and written.asks(percentage):
        value = written.value(percentage)
        yield f"{written.field_of(percentage)}: {value}: is ignored, {memory} {written.value(memory)} is used"
    cores = written.value(vendor.cores_resource)
    read = quantity(cores)
    if read is not None and read.value() > _EXCLUSIVE_CORES:
        yield f"{written.field_of(vendor.cores_resource)}: {cores}: counts as {_EXCLUSIVE_CORES}, a whole card"


def _is_exclusive(container: Container) -> bool:
    return all(request.cores >= _EXCLUSIVE_CORES for request in container.requests)
