"""Whatever was asked and happened before, an answer is that of a process that remembers nothing.

They exist because what is remembered wrongly stays wrong, and only random pods of several vendors, cards in MIG mode,
own bookings, claims and budgets together reach what no test would write by hand. They must not look into memories.
Invariants: equal demands get equal answers; every answer is compared with that of a new cache with the same objects.
"""

from dataclasses import replace
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.answers import Claim, Claims, Placement, Verdict, Verdicts, claim_of, filter_nodes, place_beside
from accounting.demand import Demand
from accounting.node import Device, Node, tie_order
from accounting.pod import Container, ContainerKind, Pod
from accounting.pod_record import record_pod
from accounting.quota import Budget, Limit, QuotaCheck
from accounting.quota.limits import Left
from accounting.quota_scope import PodScope
from accounting.selection import Selection
from accounting.state.cache import Cache
from tests.accounting.test_mig import SMALL, mig_card
from tests.builders import make_node, make_pod
from tests.strategies import devices, policies, rarely, requests, selections

VENDORS = "NVIDIA", "DCU", "MLU"
NODES = "n0", "n1", "n2"
#: More names than half of a snapshot's rows, so that every row is judged and verdicts are kept.
ASKED = [*NODES, "nowhere"] * 12

_KINDS_OF_CONTAINERS = st.lists(st.sampled_from(ContainerKind), min_size=1, max_size=3)


@cache
@st.composite
def nodes(draw: st.DrawFn, name: str, vendors: int, *, mig: bool) -> Node:
    """A node with some cards of each vendor, a few of them in MIG mode."""
    found: list[Device] = []
    for vendor in VENDORS[:vendors]:
        for at in range(draw(st.integers(0 if vendors > 1 else 1, 3))):
            uuid = f"{name}-{vendor}-{at}"
            if mig and vendor == VENDORS[0] and draw(st.booleans()):
                found.append(replace(mig_card(uuid, index=at, layout=SMALL), slots=4, memory=40))
            else:
                found.append(replace(draw(devices(uuid)), vendor=vendor))
    return make_node(
        name, sorted(found, key=tie_order), count_allocatable=draw(st.integers(0, 6)) if draw(rarely) else None
    )


@cache
@st.composite
def pods(draw: st.DrawFn, vendors: int) -> Pod:
    """A pod that asks for cards of some of the vendors."""
    kinds = sorted(draw(_KINDS_OF_CONTAINERS), key=lambda kind: kind == "app")
    asked = sorted(draw(st.sets(st.sampled_from(VENDORS[:vendors]), min_size=1)), key=VENDORS.index)
    containers = []
    for number, kind in enumerate(kinds):
        own = [draw(requests())._replace(vendor=vendor) for vendor in asked if number == 0 or draw(st.booleans())]
        containers.append(Container("", kind, own[0] if own else None, tuple(own[1:])))
    chosen = [replace(draw(selections()) if draw(rarely) else Selection(), vendor=vendor) for vendor in asked]
    pod = make_pod("p", containers, selection=chosen[0], policies=draw(policies()))
    return pod._replace(further_selections=tuple(chosen[1:]))


@st.composite
def relatives(draw: st.DrawFn, pod: Pod) -> Pod:
    """A pod that differs in one respect, so that too small a key would confuse the two."""
    at = draw(st.integers(0, len(pod.containers) - 1))
    own = pod.containers[at]
    if own.request is None:
        return pod._replace(selection=replace(draw(selections()), vendor=pod.selection.vendor))
    more = own.request._replace(memory=draw(st.sampled_from((3, 9, 90))), memory_percentage=0, whole=False)
    ways = ("further request",) * 3 if own.further_requests else ()
    match draw(st.sampled_from((*ways, "kind", "request", "selection", "policies"))):
        case "kind":
            changed = replace(own, kind=draw(st.sampled_from(ContainerKind)))
        case "request":
            changed = replace(own, request=more)
        case "further request":
            further = more._replace(vendor=own.further_requests[-1].vendor)
            changed = replace(own, further_requests=(*own.further_requests[:-1], further))
        case "policies":
            return pod._replace(policies=draw(policies()))
        case _:
            return pod._replace(selection=replace(draw(selections()), vendor=pod.selection.vendor))
    containers = [*pod.containers[:at], changed, *pod.containers[at + 1 :]]
    containers.sort(key=lambda container: container.kind is ContainerKind.APP)
    return pod._replace(containers=tuple(containers))


@st.composite
def families(draw: st.DrawFn, vendors: int) -> list[Pod]:
    """A pod and some that differ little from it."""
    pod = draw(pods(vendors))
    return [pod, *(draw(relatives(pod)) for _ in range(draw(st.integers(1, 3))))]


@st.composite
def budgets(draw: st.DrawFn) -> Budget | None:
    """Mostly no budget; else little memory of the first vendor's cards."""
    if not draw(rarely):
        return None
    limit = Limit("default", "gpus", "nvidia.com/gpumem", 20, (), enforced_by_api=False)
    return Budget(VENDORS[0], Left(draw(st.integers(0, 20)), limit, 0))


def make_cache(vendors: int, at_first: dict[str, Node], bound: dict[str, Pod]) -> Cache:
    cache = Cache(VENDORS[:vendors])
    for node in at_first.values():
        cache.add_node(node)
    for pod in bound.values():
        cache.add_pod(record_pod(pod))
    return cache


def said(verdict: Verdict) -> tuple[list[bool], list[int], list[bool]]:
    """Return what a verdict says; the code of a node that fits means nothing."""
    codes = np.where(verdict.feasible, 0, verdict.codes)
    return verdict.feasible.tolist(), codes.tolist(), verdict.unresolvable.tolist()


def judged(cache: Cache, pod: Pod, budget: Budget | None, verdicts: Verdicts | None = None) -> Verdict:
    snapshot = cache.snapshot()
    own = cache.own_row(pod.uid)
    return filter_nodes(snapshot, pod, snapshot.rows_of(ASKED), own, QuotaCheck((), budget), verdicts)


def claimed(cache: Cache, pod: Pod, node: str) -> Claim | None:
    """Return what the pod would hold on a node without any claims."""
    snapshot = cache.snapshot()
    placement = place_beside(cache, snapshot, pod, node, Claims())
    return None if placement is None else claim_of(pod, node, placement, snapshot)


class Story:
    """A cache with all its memories, and what happened to it."""

    def __init__(self, vendors: int, at_first: list[Node]) -> None:
        self.vendors = vendors
        self.nodes = {node.name: node for node in at_first}
        self.bound: dict[str, Pod] = {}
        self.cache = make_cache(vendors, self.nodes, {})
        self.verdicts, self.claims = Verdicts(), Claims()

    def anew(self) -> Cache:
        return make_cache(self.vendors, self.nodes, self.bound)

    def ask(self, pod: Pod, budget: Budget | None) -> None:
        """Ask for everything that is kept, and compare it with answers without memory."""
        anew = self.anew()
        assert said(judged(self.cache, pod, budget, self.verdicts)) == said(judged(anew, pod, budget))
        claims = Claims()
        claims._claims.update(self.claims._claims)
        for name in NODES:
            kept = place_beside(self.cache, self.cache.snapshot(), pod, name, self.claims, budget)
            assert kept == place_beside(anew, anew.snapshot(), pod, name, claims, budget)

    def bind(self, pod: Pod, uid: str, name: str) -> None:
        placement = place_beside(self.cache, self.cache.snapshot(), pod, name, Claims())
        if isinstance(placement, Placement) and uid not in self.bound:
            self.bound[uid] = pod._replace(uid=uid, name=uid, node=name, allocation=placement.allocation)
            self.cache.add_pod(record_pod(self.bound[uid]))

    def end(self, uid: str) -> None:
        self.bound.pop(uid, None)
        self.cache.remove_pod(uid)

    def claim(self, pod: Pod, uid: str, name: str) -> None:
        claim = claimed(self.cache, pod, name)
        if claim is not None:
            self.claims.put(uid, claim, 0.0)

    def change(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.cache.update_node(node)


_KINDS = ("ask", "ask", "bind", "bind", "end", "claim", "change")


def play(data: st.DataObject, vendors: int, *, mig: bool) -> None:
    """Let random things happen, and ask in between."""
    story = Story(vendors, [data.draw(nodes(name, vendors, mig=mig)) for name in NODES])
    asking = data.draw(families(vendors))
    for kind in data.draw(st.lists(st.sampled_from(_KINDS), min_size=2, max_size=8)):
        pod, name = data.draw(st.sampled_from(asking)), data.draw(st.sampled_from(NODES))
        uid = data.draw(st.sampled_from(("a", "b", "c", pod.uid)))
        match kind:
            case "ask":
                budget = data.draw(budgets())
                for each in asking:
                    story.ask(each, budget)
            case "bind":
                story.bind(pod, uid, name)
            case "end":
                story.end(uid)
            case "claim":
                story.claim(pod, uid, name)
            case _:
                story.change(data.draw(nodes(name, vendors, mig=mig)))
    for each in (*asking, *asking):
        story.ask(each, None)


@settings(max_examples=60)
@given(st.data(), st.integers(1, 3))
def test_kept_answers_are_those_of_a_new_cache(data: st.DataObject, vendors: int) -> None:
    play(data, vendors, mig=False)


@settings(max_examples=40)
@given(st.data(), st.integers(1, 3))
def test_kept_answers_beside_cards_in_mig_mode_are_those_of_a_new_cache(data: st.DataObject, vendors: int) -> None:
    play(data, vendors, mig=True)


@settings(max_examples=60)
@given(st.data(), st.integers(1, 3), st.booleans())
def test_equal_demands_get_equal_answers(data: st.DataObject, vendors: int, mig: bool) -> None:
    """Whatever their names and UIDs, two pods with one demand get the same answers."""
    story = Story(vendors, [data.draw(nodes(name, vendors, mig=mig)) for name in NODES])
    for uid in ("a", "b"):
        story.bind(data.draw(pods(vendors)), uid, data.draw(st.sampled_from(NODES)))
    one = data.draw(pods(vendors))
    other = one._replace(
        uid="other",
        name="other",
        namespace="elsewhere",
        containers=tuple(replace(each, name="x") for each in one.containers),
        scope=PodScope(terminating=True, priority_class="high"),
        cpu_milli=7,
        api_charge=(("nvidia.com/gpu", 1),),
    )
    assert Demand.of(one) == Demand.of(other)
    budget = data.draw(budgets())
    assert said(judged(story.cache, one, budget)) == said(judged(story.cache, other, budget))
    for name in NODES:
        snapshot = story.cache.snapshot()
        kept = place_beside(story.cache, snapshot, one, name, Claims(), budget)
        assert kept == place_beside(story.anew(), story.anew().snapshot(), other, name, Claims(), budget)
