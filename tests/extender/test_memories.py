"""Whatever a process was asked before, it answers as a new process does.

They exist because every verb, the waker and the reading of pods have memories, and only the verbs see all of them
together: quotas with scopes, cards of several vendors and in MIG mode, policies that look ahead, own bookings. They
must not look into memories. Invariant: a new process has the same objects, and nothing else.
"""

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from itertools import product

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.demand import QuotaKey
from accounting.node import Node
from accounting.packing.mix import expected
from accounting.packing.shape import shape_of
from accounting.packing.workload import Workload, build_workload, plan_of
from accounting.pod import ContainerKind
from accounting.pod_info import NOT_STARTED
from accounting.vendors import HYGON, XPU
from extender.cluster import Cluster
from extender.config import Settings
from extender.convert import containers, convert_node, convert_pod, convert_quota, pod_info
from extender.convert.containers import PodContainers, container_reader
from extender.convert.resources import Requested
from extender.live.waking.refused import GroupKey
from extender.live.waking.simulation import Simulation
from extender.verbs import Verbs
from extender.wire import core_v1, watched
from tests.extender.objects import Json, card, container, node, pod, quota, sidecar
from tests.extender.test_mig import PROFILES
from tests.extender.test_several_vendors import dcu

SETTINGS = Settings(further_vendors=(HYGON, XPU))
#: More than half of the rows that a cache has room for at first, as in a large cluster.
NODES = tuple(f"n{number:02}" for number in range(40))
LIMIT, COUNT_LIMIT = "requests.nvidia.com/gpumem", "requests.hygon.com/dcunum"


@cache
def made_node(name: str, kind: str) -> Node:
    """A node of one of a few kinds. It is a value, so that many processes may have it."""
    cards = [card(f"GPU-{name}-{at}", at, memory=1000 + 500 * at) for at in range(2)]
    if kind == "mig":
        cards[0] = card(f"GPU-{name}-0", memory=40_960, slots=7, mode="mig", migProfiles=PROFILES)
    if kind == "small":
        cards = cards[:1]
    dcus = "".join(dcu(f"DCU-{name}-{at}", 800, index=at) for at in range(1 if kind == "small" else 2))
    wire = msgspec.convert(node(name, cards, annotations={HYGON.register_annotation: dcus}), core_v1.Node)
    return convert_node(wire, SETTINGS)


def make_cluster(kinds: dict[str, str], workload: Workload | None) -> Cluster:
    cluster = Cluster(SETTINGS)
    for name in NODES:
        cluster.put_node(made_node(name, kinds.get(name, "plain")))
    if workload is not None:
        cluster.expect(workload)
    return cluster


def put_quota(cluster: Cluster, made: Json) -> None:
    cluster.put_quota(convert_quota(msgspec.convert(made, core_v1.ResourceQuota), SETTINGS))


@pytest.fixture(scope="module")
def workload() -> Workload:
    """The workload that policies with foresight expect."""
    snapshot = make_cluster({}, None).cache.snapshot()
    plan = plan_of(snapshot)
    some = [asking("p", 300, 0), asking("p", 1000, 0), asking("p", 0, 500)]
    shapes = [shape_of(convert_pod(msgspec.convert(each, core_v1.Pod), SETTINGS)) for each in some]
    return build_workload(expected(shapes, plan.usual_memory), plan)


def asking(name: str, gpu: int, dcus: int, annotations: Json | None = None, priority_class: str = "") -> Json:
    """A pod with a sidecar and an app; 0 MiB: no card of this vendor; -1: half a card."""
    limits: Json = {}
    if gpu:
        limits["nvidia.com/gpu"] = "1"
        limits |= {"nvidia.com/gpumem": str(gpu)} if gpu > 0 else {"nvidia.com/gpumem-percentage": "50"}
    if dcus:
        limits |= {"hygon.com/dcunum": "1", "hygon.com/dcumem": str(dcus)}
    side = sidecar("side", {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}}) if gpu > 0 else None
    made = pod(name, [container("main", {"limits": limits})], inits=[side] if side else [], annotations=annotations)
    made["spec"] |= {"priorityClassName": priority_class} if priority_class else {}
    return made


annotations = st.sampled_from(
    (
        {},
        {"hami.io/node-scheduler-policy": "spread"},
        {"hami.io/node-scheduler-policy": "fragmentation"},
        {"hami.io/gpu-scheduler-policy": "binpack"},
        {"nvidia.com/use-gpuuuid": "GPU-n00-0,GPU-n01-0,GPU-n07-1"},
        {"nvidia.com/nouse-gputype": "A100"},
    )
)
requests = st.sampled_from(((300, 0), (900, 0), (-1, 0), (0, 500), (300, 500), (300, 900), (300, 100), (9000, 0)))
askings = st.builds(
    lambda name, request, notes, scope: asking(name, request[0], request[1], notes, scope),
    st.sampled_from(("p", "q")),
    requests,
    annotations,
    st.sampled_from(("", "low", "high")),
)


def in_class(operator: str, *values: str) -> Json:
    """A selector of pods by their PriorityClass."""
    expression = {"scopeName": "PriorityClass", "operator": operator} | ({"values": list(values)} if values else {})
    return {"matchExpressions": [expression]}


quotas = st.sampled_from(
    (
        quota({LIMIT: "900"}),
        quota({LIMIT: "100000", COUNT_LIMIT: "1"}),
        quota({LIMIT: "350"}, scopeSelector=in_class("Exists")),
        quota({COUNT_LIMIT: "0"}, scopeSelector=in_class("In", "low")),
    )
)
happenings = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from((0, 1, 2))),
    st.tuples(st.just("ask"), st.sampled_from((0, 1, 2))),
    st.tuples(st.just("bind"), st.sampled_from((0, 1, 2))),
    st.tuples(st.just("end"), st.sampled_from(("uid-p", "uid-q"))),
    st.tuples(st.just("quota"), quotas),
    st.tuples(st.just("node"), st.tuples(st.sampled_from(NODES[:3]), st.sampled_from(("plain", "small", "mig")))),
)


class Story:
    """One process with its memories, and its objects."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._kinds: dict[str, str] = {}
        self._quota: Json | None = None
        self.cluster = make_cluster({}, workload)
        self.verbs = Verbs(self.cluster)

    def anew(self) -> Verbs:
        """Return a new process with the same objects."""
        cluster = make_cluster(self._kinds, self._workload)
        if self._quota is not None:
            put_quota(cluster, self._quota)
        for known in self.cluster.pods():
            cluster.put_pod(known)
        return Verbs(cluster)

    def ask(self, manifest: Json) -> list[str]:
        """Filter and prioritize; compare each with a new process that was asked nothing else."""
        body = question(manifest, NODES)
        answer = self.verbs.filter(body)
        assert answer == self.anew().filter(body)
        names: list[str] = json.loads(answer)["NodeNames"] or []
        body = question(manifest, names)
        assert self.verbs.prioritize(body) == self.anew().prioritize(body)
        return names

    def happen(self, kind: str, what: object, manifests: Sequence[Json]) -> None:
        if kind == "ask":
            for manifest in manifests:
                self.ask(manifest)
        elif kind == "bind":
            manifest = manifests[int(str(what)) % len(manifests)]
            names, meta = self.ask(manifest), manifest["metadata"]
            args = {
                "PodName": meta["name"],
                "PodNamespace": "default",
                "PodUID": meta["uid"],
                "Node": names[0] if names else "n00",
            }
            self.verbs.bind(json.dumps(args).encode())
        elif kind == "end":
            self.cluster.delete_pod(str(what))
        elif kind == "quota":
            assert isinstance(what, dict)
            self._quota = what
            put_quota(self.cluster, what)
        else:
            assert isinstance(what, tuple)
            name, node_kind = what
            self._kinds[name] = node_kind
            self.cluster.put_node(made_node(name, node_kind))


def question(manifest: Json, names: Sequence[str]) -> bytes:
    return json.dumps({"Pod": manifest, "Nodes": None, "NodeNames": list(names)}, separators=(",", ":")).encode()


@settings(max_examples=40)
@given(st.lists(askings, min_size=2, max_size=3), st.lists(happenings, min_size=2, max_size=7))
def test_every_answer_is_that_of_a_new_process(
    workload: Workload, manifests: list[Json], what: list[tuple[str, object]]
) -> None:
    story = Story(workload)
    for kind, each in (*what, ("ask", 0), ("ask", 0)):
        story.happen(kind, each, manifests)


@settings(max_examples=40)
@given(
    st.lists(requests, min_size=1, max_size=2),
    st.lists(st.sampled_from(("", "low", "high")), min_size=3, max_size=6),
    st.lists(quotas, max_size=2),
    st.integers(0, 600),
)
def test_what_helps_one_pod_of_a_group_of_refused_pods_helps_each(
    workload: Workload, asked: list[tuple[int, int]], classes: list[str], limits: list[Json], used: int
) -> None:
    """A group is judged by its first pod, so all of its pods must have the same answer."""
    cluster = make_cluster({"n02": "mig"}, workload)
    for number, each in enumerate(limits):
        put_quota(cluster, each | {"metadata": each["metadata"] | {"name": f"quota-{number}"}})
    if used:
        held = asking("held", used, 0, priority_class="high")
        cluster.put_pod(convert_pod(msgspec.convert(held, core_v1.Pod), SETTINGS))
        placed = cluster.placed(cluster.pod("uid-held"), "n05")  # type: ignore[arg-type]  # it was just put
        if not isinstance(placed, tuple):
            cluster.bind(cluster.pod("uid-held")._replace(node="n05", allocation=placed.allocation))  # type: ignore[union-attr]
    simulation = Simulation(cluster, ["n00", "n02", "n05"])
    known: dict[GroupKey, bool] = {}
    for number, (request, priority_class) in enumerate(product(asked, classes)):
        manifest = asking(f"p{number}", *request, priority_class=priority_class)
        manifest["metadata"]["namespace"] = ("default", "elsewhere")[number % 2]
        read = convert_pod(msgspec.convert(manifest, core_v1.Pod), SETTINGS)
        found = simulation.place(read) is not None
        assert known.setdefault(GroupKey.of(read), found) == found
        assert GroupKey.of(read).quota == QuotaKey(read.namespace, read.scope)


# -- reading containers ------------------------------------------------------------------------------------------------

#: Texts that look alike and mean different things, or look different and mean the same.
amounts = st.sampled_from(("1", "1.0", "true", '"1"', '"1.0"', '"01"', "2", '"-1"', "null"))
resources = st.lists(
    st.tuples(st.sampled_from(("nvidia.com/gpu", "hygon.com/dcunum", "nvidia.com/gpumem", "cpu")), amounts), max_size=3
).map(lambda pairs: '{"limits": {' + ", ".join(f'"{name}": {amount}' for name, amount in dict(pairs).items()) + "}}")
Texts = list[tuple[str, str]]
texts = st.lists(st.tuples(st.sampled_from(("a", "b")), resources), min_size=1, max_size=4)


def read_anew(own: Texts, *, by_text: bool) -> PodContainers:
    containers.container_reader.cache_clear()
    containers._charge.cache_clear()
    return read_again(own, by_text=by_text)


def read_again(own: Texts, *, by_text: bool) -> PodContainers:
    each = ", ".join(f'{{"name": "{name}", "resources": {text}}}' for name, text in own)
    raw = msgspec.Raw(f'{{"spec": {{"containers": [{each}]}}}}'.encode())
    spec = (watched.decode_pod(raw) if by_text else msgspec.json.decode(raw, type=core_v1.Pod)).spec
    assert spec is not None
    return container_reader(SETTINGS.vendors)(spec)


@given(st.lists(st.tuples(texts, st.booleans()), min_size=2, max_size=5))
def test_containers_are_read_as_if_none_had_been_read_before(
    questions: list[tuple[list[tuple[str, str]], bool]],
) -> None:
    anew = [read_anew(own, by_text=by_text) for own, by_text in questions]
    containers.container_reader.cache_clear()
    containers._charge.cache_clear()
    again = [read_again(own, by_text=by_text) for own, by_text in (*questions, *questions)]
    assert list(map(_compared, again)) == list(map(_compared, anew * 2))


def test_what_a_hostile_object_says_of_its_containers_is_not_kept() -> None:
    """An object may have more than a million bytes, and thousands of them must not stay in memory."""
    containers.container_reader.cache_clear()
    many = "{" + '"limits": {' + ", ".join(f'"example.com/r{number}": "1"' for number in range(1000)) + "}}"
    for by_text in (True, False):
        read_again([("a", many)], by_text=by_text)
    of_spec = containers.container_reader(SETTINGS.vendors)
    readers = [inspect.getclosurevars(of_spec).nonlocals[name] for name in ("of_text", "of_texts", "of_values")]
    assert [sizes(each) for each in readers] == [[0], [0], [0]]
    read_again([("a", "{}")], by_text=True)
    assert [sizes(each) for each in readers] == [[1], [1], [1]]
    # A thousand containers with short names make a long key, too.
    charges = containers._charge.cache_info().currsize
    for by_text in (True, False):
        read_again([(f"c{number}", '{"limits": {"nvidia.com/gpu": "1"}}') for number in range(1000)], by_text=by_text)
    assert sizes(readers[1]) == [1]
    assert containers._charge.cache_info().currsize == charges


def test_what_a_hostile_object_says_of_itself_is_not_kept() -> None:
    spec, status, before = core_v1.PodSpec(), core_v1.PodStatus(), pod_info._shared.cache_info().currsize
    labels = {f"example.com/l{number}": "x" for number in range(1000)}
    assert len(pod_info.info_of(core_v1.ObjectMeta(labels=labels), spec, status, ()).labels) == 1000
    requested = tuple(Requested(ContainerKind.APP, ()) for _ in range(1000))
    pod_info.info_of(core_v1.ObjectMeta(), spec, status, requested)
    assert pod_info._shared.cache_info().currsize == before
    times = pod_info._seconds.cache_info().currsize
    assert pod_info.started_of(core_v1.PodStatus(startTime="x" * 1000)) == NOT_STARTED
    assert pod_info._seconds.cache_info().currsize == times


def sizes(reads: Callable[..., object]) -> list[int]:
    """Return how much each memory keeps that a function of a reader uses."""
    held = inspect.getclosurevars(reads).nonlocals.values()
    sizes = [each.cache_info().currsize for each in held if hasattr(each, "cache_info")]
    return sizes + [len(each) for each in held if isinstance(each, OrderedDict)]


def _compared(read: PodContainers) -> tuple[object, ...]:
    """Return what two readings must share: what kube-scheduler counts is compared by identity elsewhere."""
    return read._replace(requested=()), [(each.kind, each.amounts) for each in read.requested]
