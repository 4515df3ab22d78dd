"""Random nodes and pods for hypothesis, small on purpose: few UUIDs, few sizes, so that cards fill up and collide.

It exists to reach what no test would write by hand: exclusive rows beside others, orphans, unreadable allocations,
cards that are cordoned, doubled or unhealthy. It must not know how anything is accounted. Invariant: some object of a
real cluster could say everything that is drawn.
"""

from collections.abc import Sequence
from functools import cache, lru_cache

from hypothesis import strategies as st

from accounting.node import Device, Node
from accounting.pod import Allocation, Container, ContainerKind, DeviceRequest, DeviceRow, Pod, UnreadableAllocation
from accounting.policy import Policies, Weights
from accounting.selection import Selection, parse_types
from accounting.status import Invalid
from accounting.topology import Link
from tests.builders import make_device, make_node, make_pod, make_policies, make_unreadable

UUIDS = tuple(f"GPU-{i}" for i in range(6))
NODES = ("n0", "n1", "n2")
MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA A10", "Tesla T4", "")
MODES = ("hami-core", "hami-core", "", "mps", "mig")
CARD_POLICIES = (
    "spread",
    "binpack",
    "numa",
    "mutex",
    "mutex,binpack",
    "binpack,numa",
    "numa,binpack",
    "spread,binpack",
    "topology-aware",
    "",
)
_MEMORY = st.sampled_from((10, 16, 16, 20, 25, 7, 0))
_CORES = st.sampled_from((100, 100, 100, 200, 150, 50, 0))
#: The most ordinary inits, sidecars and apps of a pod together; more would test nothing new.
_MOST_CONTAINERS = 6


#: True about once in sixteen; shrinks to False.
rarely = st.sampled_from((*[False] * 15, True))
# Drawn thousands of times in a run, so they are made once.
_INDEX, _NO_SLOTS, _SLOTS, _NUMA = st.integers(0, 5), st.integers(0, 1), st.integers(2, 6), st.integers(0, 1)
_MODEL, _MODE = st.sampled_from(MODELS), st.sampled_from(MODES)
_COUNT, _LARGE_COUNT = st.integers(1, 2), st.integers(1, 7)
_MIB, _LARGE_MIB, _PERCENT = st.integers(1, 5), st.integers(5, 16), st.sampled_from((1, 33, 50, 100))
_SHARES = st.sampled_from(((0, 0, 10, 25, 40), (0, 0, 10, 25, 40), (0, 100)))
_UUID, _ANY_UUID = st.sampled_from(UUIDS), st.sampled_from((*UUIDS, "GPU-gone", "GPU-lost"))
_ROW_CORES, _MANY_ROW_CORES, _ROW_MIB = st.sampled_from((0, 5, 10, 25)), st.sampled_from((100, 60)), st.integers(0, 4)
_NAMESPACE, _NODE, _ANY_NODE = st.sampled_from(("a", "b")), st.sampled_from(NODES), st.sampled_from((*NODES, "n-gone"))
_BOOLEAN = st.booleans()
_ANY_UUIDS, _SOME_UUIDS = (
    st.lists(st.sampled_from(UUIDS), unique=True, min_size=least, max_size=len(UUIDS)) for least in (0, 2)
)


@cache
@st.composite
def devices(draw: st.DrawFn, uuid: str) -> Device:
    """One card with this UUID."""
    return make_device(
        uuid,
        index=draw(_INDEX),
        slots=draw(_NO_SLOTS) if draw(rarely) else draw(_SLOTS),
        memory=draw(_MEMORY),
        cores=draw(_CORES),
        model=draw(_MODEL),
        numa=draw(_NUMA),
        mode=draw(_MODE) if draw(rarely) else "hami-core",
        healthy=not draw(rarely),
    )


@cache
@st.composite
def nodes(draw: st.DrawFn, name: str = NODES[0]) -> Node:
    """A node with up to six cards of the shared pool of UUIDs."""
    uuids = draw(_ANY_UUIDS if draw(rarely) else _SOME_UUIDS)
    return make_node(
        name,
        [draw(devices(uuid)) for uuid in uuids],
        cordoned=[uuid for uuid in uuids if draw(rarely)],
        duplicated=[uuid for uuid in uuids if draw(rarely)],
        count_allocatable=draw(st.integers(0, 12)) if draw(rarely) else None,
        single_numa=draw(rarely),
        links=draw(links(uuids)) if draw(rarely) else (),
    )


def links(uuids: Sequence[str]) -> st.SearchStrategy[tuple[Link, ...]]:
    """Scores of some pairs of cards; few values, so that sets are often equal."""
    pairs = [(a, b) for a in sorted(uuids) for b in sorted(uuids) if a < b]
    scores = st.lists(st.sampled_from((0, 10, 20, 100)), min_size=len(pairs), max_size=len(pairs))
    return scores.map(lambda drawn: tuple((a, b, score) for (a, b), score in zip(pairs, drawn, strict=True)))


@cache
def clusters() -> st.SearchStrategy[list[Node]]:
    """Three nodes that share UUIDs, or fewer."""
    return st.tuples(rarely, *map(nodes, NODES)).map(lambda drawn: list(drawn[2:] if drawn[0] else drawn[1:]))


@cache
def _cores_of(shares: tuple[int, ...]) -> st.SearchStrategy[int]:
    return st.sampled_from(shares)


@cache
@st.composite
def requests(draw: st.DrawFn, shares: tuple[int, ...] = (0, 0, 10, 25, 40)) -> DeviceRequest:
    """What one container asks for; `shares` are its cores."""
    count = draw(_LARGE_COUNT) if draw(rarely) else draw(_COUNT)
    cores = 100 if draw(rarely) else draw(_cores_of(shares))
    if draw(rarely):
        return DeviceRequest(count, 0, 100, cores, whole=True)
    if draw(rarely):
        return DeviceRequest(count, 0, draw(_PERCENT), cores)
    return DeviceRequest(count, draw(_LARGE_MIB) if draw(rarely) else draw(_MIB), 0, cores)


@cache
def _kinds(least: int, most: int) -> st.SearchStrategy[list[ContainerKind]]:
    return st.lists(st.sampled_from(ContainerKind), min_size=least, max_size=most)


@cache
@st.composite
def containers(draw: st.DrawFn, *, least: int = 1, most: int = _MOST_CONTAINERS) -> tuple[Container, ...]:
    """Init containers and sidecars in any order, then apps."""
    kinds = draw(_kinds(least, most))
    kinds.sort(key=lambda kind: kind is ContainerKind.APP)
    # Drawn one by one, several containers of one pod would hardly ever each want a card for themselves.
    shares = draw(_SHARES)
    return tuple(Container("", kind, None if draw(rarely) else draw(requests(shares))) for kind in kinds)


@cache
@st.composite
def selections(draw: st.DrawFn) -> Selection:
    """Mostly no limits; if any, lists of wanted and unwanted cards."""
    some_uuids = st.frozensets(st.sampled_from((*UUIDS, "GPU-gone")), max_size=5)
    some_types = st.sampled_from(("", "A10", "nvidia", "a100,t4", "Tesla T4", "none")).map(parse_types)
    limit = draw(st.sampled_from(("", "", "", "uuids", "types", "modes")))
    return Selection(
        use_uuids=draw(some_uuids) if limit == "uuids" else frozenset(),
        nouse_uuids=draw(some_uuids) if limit == "uuids" else frozenset(),
        use_types=draw(some_types) if limit == "types" else (),
        nouse_types=draw(some_types) if limit == "types" else (),
        modes=draw(st.sampled_from(("hami-core", "mps", "mig", "mps,hami-core"))) if limit == "modes" else "",
        numa_bind=draw(st.booleans()),
    )


@cache
@st.composite
def policies(draw: st.DrawFn) -> Policies:
    """Any policy, mostly with equal weights."""
    of_load = draw(weights()) if draw(rarely) else Weights()
    return make_policies(
        draw(st.sampled_from(CARD_POLICIES)),
        draw(st.sampled_from(("binpack", "spread"))),
        (of_load.slot, of_load.core, of_load.memory),
    )


@cache
def _rows(uuid: st.SearchStrategy[str], cores: st.SearchStrategy[int]) -> st.SearchStrategy[list[DeviceRow]]:
    return st.lists(st.builds(DeviceRow, uuid, _ROW_MIB, cores), max_size=2)


@st.composite
def allocations(draw: st.DrawFn, own: Sequence[Container]) -> Allocation:
    """Rows on any cards, also rows that no scheduler would give: over-committed, or on cards that are gone."""
    uuid = _ANY_UUID if draw(rarely) else _UUID
    cores = _MANY_ROW_CORES if draw(rarely) else _ROW_CORES
    rows = _rows(uuid, cores)
    return tuple(tuple(draw(rows)) for _ in own)


@cache
def unreadable_allocations() -> st.SearchStrategy[UnreadableAllocation]:
    """Allocations in which some UUIDs, registered or not, can still be read."""
    return st.lists(st.sampled_from((*UUIDS, "GPU-gone")), unique=True, max_size=2).map(
        lambda uuids: make_unreadable(*uuids)
    )


@cache
def _no_allocations() -> st.SearchStrategy[UnreadableAllocation | None]:
    return st.none() | unreadable_allocations()


@lru_cache(256)
@st.composite
def bound_pods(draw: st.DrawFn, uid: str, own: tuple[Container, ...] | None = None) -> Pod:
    """A pod as the API server shows it once it is on a node."""
    if own is None:
        own = draw(containers(most=4))
    none = _no_allocations()
    return make_pod(
        uid.split(".", maxsplit=1)[0],
        own,
        uid=uid,
        namespace=draw(_NAMESPACE),
        node=draw(_ANY_NODE if draw(rarely) else _NODE),
        allocation=draw(none) if draw(rarely) else draw(allocations(own)),
        terminal=draw(rarely),
        inits_over=draw(_BOOLEAN),
    )


@cache
@st.composite
def pending_pods(draw: st.DrawFn, uid: str = "arriving") -> Pod:
    """A pod that wants a node."""
    return make_pod(
        uid,
        draw(containers(least=0)),
        uid=uid,
        selection=draw(selections()) if draw(_BOOLEAN) else None,
        policies=draw(policies()),
        invalid=(Invalid("spec.containers[a]", "-1", "must not be negative"),) if draw(rarely) and draw(rarely) else (),
    )


@st.composite
def crowds(draw: st.DrawFn, most: int = 8) -> list[Pod]:
    """Pods that are on nodes already."""
    return [draw(bound_pods(f"p{i}")) for i in range(draw(st.integers(0, most)))]


@cache
def weights() -> st.SearchStrategy[Weights]:
    """Weights of a card's load, of which at least one is positive."""
    number = st.integers(0, 5)
    return st.builds(Weights, number, number, number).filter(lambda w: bool(w.slot or w.core or w.memory))
