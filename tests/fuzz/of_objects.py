"""Texts in objects: annotations of pods and nodes, quantities, and lines of a watch.

It must not know the fuzzer. Invariants: an object that decodes is converted, whatever it holds; two readings of the
same text agree.
"""

from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction

import msgspec

from accounting.answers import problem_counts, problems
from accounting.errors import QuantityError
from accounting.pod import Pod, UnreadableAllocation
from accounting.pod_record import record_pod
from accounting.quantity import parse_quantity
from accounting.state.cache import Cache
from accounting.vendor import NVIDIA, RegisterFormat
from accounting.vendors import VENDORS
from extender.cluster import Cluster
from extender.config import Settings
from extender.convert import convert_node, convert_pod, pack_rows, unpack_rows
from extender.convert.pod import CARD_POLICY, NODE_POLICY, WEIGHTS
from extender.kube.client import WatchFailed
from extender.kube.listing import Expired
from extender.kube.reflector import Change, Sink
from extender.kube.watch_event import read_event, version_of
from extender.live.watching import BudgetSink, Facts, NodeSink, PodInformer, PodSink, QuotaSink
from extender.wire import core_v1
from tests.extender.objects import bound, node, pod, quota

OTHERS = tuple(vendor for vendor in VENDORS.values() if vendor.key != NVIDIA.key)
SETTINGS = Settings(further_vendors=OTHERS)
VENDORS_ON = SETTINGS.vendors
_KINDS = ("init", "sidecar", "app", "app")
_ROWS = "GPU-a,NVIDIA,1000,10:"


# -- pods -----------------------------------------------------------------------------------------------------------


def _pod(annotations: dict[str, str]) -> Pod:
    """A bound pod whose containers ask for cards of several vendors."""
    asked = [{vendor.count_resource: "1"} for vendor in VENDORS_ON[:2]]
    containers = [
        core_v1.Container(
            name=f"{kind}{number}",
            resources=core_v1.Resources(limits=asked[number % 2]),
            restartPolicy="Always" if kind == "sidecar" else None,
        )
        for number, kind in enumerate(_KINDS)
    ]
    spec = core_v1.PodSpec(initContainers=containers[:2], containers=containers[2:], nodeName="n1")
    return convert_pod(core_v1.Pod(core_v1.ObjectMeta("p", "default", "u", annotations=annotations), spec), SETTINGS)


def allocation(chosen: int, text: bytes) -> None:
    """Read an allocation; a zero byte separates it from a MIG annotation."""
    vendor = VENDORS_ON[chosen % len(VENDORS_ON)]
    rows, _, mig = text.decode(errors="replace").partition("\0")
    annotations = {vendor.devices_allocated_annotation: rows}
    if vendor.mig_annotation:
        annotations[vendor.mig_annotation] = mig
    read = _pod(annotations)
    _counts(read)
    if read.allocation is None or isinstance(read.allocation, UnreadableAllocation):
        return
    again = unpack_rows(pack_rows(read.allocation), read.containers, "allocation")
    assert again == read.allocation, (again, read.allocation)


def _counts(read: Pod) -> None:
    """Book a pod and end it; the cache must be as before."""
    cache = Cache([vendor.key for vendor in VENDORS_ON])
    cache.add_node(convert_node(core_v1.decode_node(_NODE), SETTINGS))
    before = cache.snapshot()
    cache.add_pod(record_pod(read))
    listed, counted = problems(cache), problem_counts(cache)
    assert sum(counted.values()) == len(listed), (counted, listed)
    cache.remove_pod(read.uid)
    for name in ("slots", "memory", "cores", "holders", "exclusive", "blocks"):
        was, now = getattr(before.requested, name), getattr(cache.snapshot().requested, name)
        assert (was == now).all(), name


def allocation_seeds() -> Iterator[bytes]:
    """Return rows as HAMi writes them."""
    for text in (f"{_ROWS};{_ROWS};{_ROWS};{_ROWS};", _ROWS * 2 + ";;;;", ";", "GPU-a[0-1],NVIDIA,4096,14:;"):
        yield b"\0" + text.encode()
    mig = '[{"uuid":"GPU-a","index":0,"placement":{"start":0,"size":1},"profile":"1g.5gb"}]'
    yield b"\0" + f"{_ROWS};\0{mig}".encode()
    yield b"\1" + b"Ascend910A-0,Ascend910A,1000,0:;"


_CHOICES = tuple(
    sorted(
        {
            getattr(vendor, field.name)
            for vendor in VENDORS_ON
            for field in fields(vendor)
            if field.name.endswith(("uuid_annotation", "type_annotation", "bind_annotation", "mode_annotation"))
        }
        | {NODE_POLICY, CARD_POLICY, WEIGHTS} - {""}
    )
)


def selection(chosen: int, text: bytes) -> None:
    """Read which cards a pod wants: two annotations, separated by a zero byte."""
    first, _, second = text.decode(errors="replace").partition("\0")
    keys = _CHOICES[chosen % len(_CHOICES)], _CHOICES[(chosen // 16) % len(_CHOICES)]
    read = _pod(dict(zip(keys, (first, second), strict=True)))
    for selected in (read.selection, *read.further_selections):
        for name in ("GPU-a", "", "NVIDIA A100-SXM4-40GB"):
            selected.accepts_uuid(name)
            selected.accepts_type(name)
            selected.accepts_mode(name)


def selection_seeds() -> Iterator[bytes]:
    """Return lists, words and booleans."""
    for number in range(len(_CHOICES)):
        for text in ("GPU-a,GPU-b", "A100,H100", "binpack", "true", "mig"):
            yield bytes([number]) + text.encode()


# -- nodes ----------------------------------------------------------------------------------------------------------

_NODE = msgspec.json.encode(node("n1", 2))
_OF_NODES = tuple(
    dict.fromkeys(
        key
        for vendor in VENDORS_ON
        for key in (vendor.register_annotation, vendor.cordon_annotation, vendor.link_scores_annotation)
        if key
    )
)


def register(chosen: int, text: bytes) -> None:
    """Read an annotation of a node, beside a valid register."""
    key, said = _OF_NODES[chosen % len(_OF_NODES)], text.decode(errors="replace")
    wire = core_v1.decode_node(_NODE)
    assert wire.metadata is not None
    annotations = {**(wire.metadata.annotations or {}), key: said}
    wire = core_v1.Node(msgspec.structs.replace(wire.metadata, annotations=annotations), wire.status)
    read = convert_node(wire, SETTINGS)
    uuids = [device.uuid for device in read.devices]
    assert len(uuids) == len(set(uuids))
    assert all(device.slots >= 0 and device.memory >= 0 and device.cores >= 0 for device in read.devices)
    cache = Cache([vendor.key for vendor in VENDORS_ON])
    cache.add_node(read)
    assert sum(problem_counts(cache).values()) == len(problems(cache))


def register_seeds() -> Iterator[bytes]:
    """Return registers in both formats, cordons and topologies."""
    registered = next(iter((node("n1", 2)["metadata"]["annotations"]).values()))
    legacy = "GPU-a,10,1000,100,NVIDIA-A100,0,true:"
    links = '[{"uuid":"GPU-n1-0","score":{"GPU-n1-1":100}}]'
    for number, key in enumerate(_OF_NODES):
        vendors = [vendor for vendor in VENDORS_ON if vendor.register_annotation == key]
        texts = [legacy if vendors[0].register_format is not RegisterFormat.JSON else registered] if vendors else []
        for text in texts or ("GPU-n1-0,GPU-n1-1", links):
            yield bytes([number % 256]) + text.encode()


# -- quantities -----------------------------------------------------------------------------------------------------


def quantity(chosen: int, text: bytes) -> None:
    """Read a quantity, as text or as JSON."""
    raw: object = text.decode(errors="replace")
    if chosen % 2:
        try:
            raw = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
    try:
        read = parse_quantity(raw)
    except QuantityError:
        return
    exact = Fraction(read.nano, 10**9)
    assert read.is_integer == (exact.denominator == 1)
    assert abs(read.value()) >= abs(exact) > abs(read.value()) - 1 or exact == read.value()
    assert abs(read.milli_value()) >= abs(exact * 1000)


def quantity_seeds() -> Iterator[bytes]:
    """Return quantities with every suffix, signs and exponents."""
    for text in ("1", "-1.5", "1e3", "1E-3", "1Ki", "5Mi", "2Gi", "100m", "1n", "1u", "1k", "9E", "9Ei", "+.5", " 1 "):
        yield b"\0" + text.encode()
        yield b"\1" + f'"{text}"'.encode()
    yield b"\1" + b"1.5e300"


# -- watches ----------------------------------------------------------------------------------------------------------


def watch_line(chosen: int, line: bytes) -> None:
    """Give a line of a watch to the sink of its resource, which then counts what it says."""
    cluster = Cluster(SETTINGS, deletions_are_told=True)
    sinks: tuple[Sink, ...] = (
        PodSink(cluster, PodInformer(cluster)),
        NodeSink(cluster, Facts()),
        QuotaSink(cluster),
        BudgetSink(cluster.residents.budgets),
    )
    try:
        event = read_event(line)
        version_of(event)
    except (Expired, WatchFailed):
        return
    sinks[1].change(Change.PUT, msgspec.Raw(_NODE))
    for change in Change:
        sinks[chosen % len(sinks)].change(change, event.raw)
    cluster.problems()
    cluster.cache.snapshot()


def watch_seeds() -> Iterator[bytes]:
    """Return one event of each resource, and errors."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "uid": "u"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
        "status": {"disruptionsAllowed": 1},
    }
    of_kind = (bound("p", "n1", "GPU-n1-0", 30), node("n2"), quota({"requests.nvidia.com/gpu": "4"}), budget)
    for number, value in enumerate(of_kind):
        value["metadata"] |= {"uid": "uid-1", "resourceVersion": "7"}
        yield bytes([number]) + msgspec.json.encode({"type": "ADDED", "object": value})
    yield b"\0" + msgspec.json.encode({"type": "MODIFIED", "object": pod("p")})
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "m", "details": {"retryAfterSeconds": 1}}
    yield b"\0" + msgspec.json.encode({"type": "ERROR", "object": status})
