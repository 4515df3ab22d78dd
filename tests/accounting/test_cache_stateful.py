"""Whatever events the cache gets, in whatever order, its numbers are those of the present objects.

It exists because the cache adds and subtracts, while the rule is about the objects that exist. It must not know how the
cache counts: `World` keeps the objects, and the reference counts them. Invariant: after every step each card, each node
and each namespace agrees, and a cache that starts from the same objects in another order has the same numbers.
"""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from accounting.answers import DeviceReport, device_reports
from accounting.answers.allocate import allocate
from accounting.errors import InvariantViolation
from accounting.node import Node, tie_order
from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.state import Dump, Snapshot
from accounting.state.cache import Cache
from accounting.status import Problem
from benchmarks.random_events import NodeNumbers, World, numbers
from tests.builders import app, make_allocation, make_node, make_pod, snapshot_bytes, uuids_on
from tests.strategies import NODES, allocations, bound_pods, devices, nodes, pending_pods, unreadable_allocations

#: A pod's name and its life; the next pod of that name has the next number.
UIDS = tuple(f"p{name}.{life}" for name in range(4) for life in range(2))
names = st.sampled_from(NODES)
times = st.sampled_from((1, 1, 1, 2))


Everything = tuple[list[DeviceReport], set[Problem]]


class CacheMachine(RuleBasedStateMachine):
    """Rules are the events of a cluster; some come twice."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.kept: tuple[Snapshot, bytes] | None = None
        self.dumps: list[tuple[Dump, Everything]] = []

    # -- nodes ----------------------------------------------------------------------------------------------------

    @rule(node=names.flatmap(nodes), times=times)
    def put_node(self, node: Node, times: int) -> None:
        for _ in range(times):
            self.world.put_node(node)

    @precondition(lambda self: self.world.nodes)
    @rule(data=st.data(), cards_leave=st.booleans(), times=times)
    def change_one_card(self, data: st.DataObject, cards_leave: bool, times: int) -> None:
        node = self.world.nodes[data.draw(st.sampled_from(sorted(self.world.nodes)))]
        cards = {device.uuid: device for device in node.devices}
        uuid = data.draw(st.sampled_from([*sorted(cards), "GPU-gone"]))
        if cards_leave:
            cards.pop(uuid, None)
        else:
            cards[uuid] = data.draw(devices(uuid))
        ordered = tuple(sorted(cards.values(), key=tie_order))
        changed = replace(node, devices=ordered, duplicated=node.duplicated & cards.keys())
        for _ in range(times):
            self.world.put_node(changed)

    @rule(name=names, times=times)
    def remove_node(self, name: str, times: int) -> None:
        for _ in range(times):
            self.world.remove_node(name)

    # -- the watch ------------------------------------------------------------------------------------------------

    @rule(uid=st.sampled_from(UIDS), data=st.data(), times=times)
    def see_pod(self, uid: str, data: st.DataObject, times: int) -> None:
        known = self.world.seen.get(uid)
        # Containers do not change in a pod's life.
        self.tell(data.draw(bound_pods(uid, None if known is None else known.containers)), times)

    @precondition(lambda self: self.world.seen)
    @rule(data=st.data(), times=times)
    def status_changes(self, data: st.DataObject, times: int) -> None:
        pod = self.known_pod(data)
        self.tell(pod._replace(inits_over=not pod.inits_over), times)

    @precondition(lambda self: self.world.seen)
    @rule(data=st.data(), mend=st.booleans(), times=times)
    def allocation_changes(self, data: st.DataObject, mend: bool, times: int) -> None:
        pod = self.known_pod(data)
        broken = st.none() | unreadable_allocations()
        self.tell(pod._replace(allocation=data.draw(allocations(pod.containers) if mend else broken)), times)

    @precondition(lambda self: self.world.seen)
    @rule(data=st.data(), times=times)
    def pod_ends(self, data: st.DataObject, times: int) -> None:
        self.tell(self.known_pod(data)._replace(terminal=True), times)

    @precondition(lambda self: self.world.seen)
    @rule(data=st.data(), times=times)
    def seen_without_node(self, data: st.DataObject, times: int) -> None:
        self.tell(self.known_pod(data)._replace(node=None, allocation=None), times)

    @rule(uid=st.sampled_from(UIDS), times=times)
    def remove_pod(self, uid: str, times: int) -> None:
        for _ in range(times):
            self.world.remove_pod(uid)

    # -- binding --------------------------------------------------------------------------------------------------

    @rule(pod=st.sampled_from(UIDS).flatmap(bound_pods), data=st.data(), times=times)
    def assume_any_rows(self, pod: Pod, data: st.DataObject, times: int) -> None:
        known = self.world.pods.get(pod.uid, pod)
        rows = data.draw(allocations(known.containers))
        pod = known._replace(node=pod.node, terminal=False, allocation=rows)
        if known.node != pod.node:
            with pytest.raises(InvariantViolation):
                self.world.cache.assume_pod(record_pod(pod))
        else:
            for _ in range(times):
                self.world.assume(pod)

    @precondition(lambda self: self.world.nodes)
    @rule(uid=st.sampled_from(UIDS), pod=pending_pods(), data=st.data())
    def schedule(self, uid: str, pod: Pod, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.nodes)))
        if uid in self.world.pods:
            return
        snapshot = self.world.cache.snapshot()
        placement = allocate(snapshot, pod, snapshot.rows[name], uuids_on(self.world.cache, name))
        if placement is not None:
            self.world.assume(pod._replace(uid=uid, node=name, allocation=placement.allocation))

    @rule(uid=st.sampled_from(UIDS), times=times)
    def finish_binding(self, uid: str, times: int) -> None:
        for _ in range(times):
            self.world.finish_binding(uid)

    @rule(uid=st.sampled_from(UIDS), times=times)
    def forget(self, uid: str, times: int) -> None:
        for _ in range(times):
            self.world.forget(uid)

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def numbers_are_those_of_the_objects(self) -> None:
        self.world.check()

    @rule()
    def keep_a_snapshot(self) -> None:
        snapshot = self.world.cache.snapshot()
        self.kept = snapshot, snapshot_bytes(snapshot)

    @invariant()
    def a_snapshot_never_changes(self) -> None:
        if self.kept is not None:
            assert snapshot_bytes(self.kept[0]) == self.kept[1]

    @rule()
    def keep_a_dump(self) -> None:
        self.dumps = [*self.dumps[-1:], (self.world.cache.dump(), everything(self.world.cache))]

    @invariant()
    def a_dump_never_changes(self) -> None:
        for dump, then in self.dumps:
            assert everything(dump) == then

    @rule(order=st.randoms(use_true_random=False))
    def restart(self, order: Random) -> None:
        """A new process lists everything; it knows only the allocations that it can read now."""
        told_anew([*self.world.nodes.values(), *self.world.seen.values()], order)

    @rule(order=st.randoms(use_true_random=False))
    def replay(self, order: Random) -> None:
        """A cache that gets the same objects in another order has the same numbers, orphans included."""
        again = told_anew([*self.world.nodes.values(), *self.world.pods.values()], order)
        assert all_numbers(again.cache) == all_numbers(self.world.cache)

    # -- helpers --------------------------------------------------------------------------------------------------

    def tell(self, pod: Pod, times: int) -> None:
        for _ in range(times):
            self.world.see_pod(pod)

    def known_pod(self, data: st.DataObject) -> Pod:
        return self.world.seen[data.draw(st.sampled_from(sorted(self.world.seen)))]


def everything(cache: Cache | Dump) -> Everything:
    """Return what reports say of a cache, or of what it was."""
    return device_reports(cache), set(cache.pod_problems)


def told_anew(things: list[Node | Pod], order: Random) -> World:
    """Return a world that got these objects in this order."""
    world = World()
    order.shuffle(things)
    for thing in things:
        if isinstance(thing, Node):
            world.put_node(thing)
        else:
            world.see_pod(thing)
    world.check()
    return world


def all_numbers(cache: Cache) -> dict[str, NodeNumbers | None]:
    """Return everything derived, by node."""
    snapshot = cache.snapshot()
    return {name: numbers(cache, snapshot, name) for name in cache.node_names()}


TestCache = CacheMachine.TestCase
TestCache.settings = settings(stateful_step_count=30)


def test_forged_numbers_do_not_wrap() -> None:
    """Anybody may write an annotation; two rows near 2^31 once made a full card look free."""
    world, limit = World(), 2**31 - 1
    world.put_node(make_node(count_allocatable=2**40))
    for name in ("a", "b"):
        rows = make_allocation([("GPU-0", limit, limit)] * 20_000, [])
        world.see_pod(make_pod(name, [app(1, count=limit), app(1, count=limit)], node="n1", allocation=rows))
    world.see_pod(make_pod("c", [app(1, count=limit), app(1, count=limit)], node="n1"))
    snapshot = world.cache.snapshot()
    assert snapshot.free_cores[0, snapshot.rows["n1"]] == 100 - 40_000 * limit
    assert not snapshot.requested.usable.any()


def test_cards_that_do_not_exist_take_no_room() -> None:
    world = World()
    world.put_node(make_node())
    before = world.cache.snapshot().devices
    rows = make_allocation([(f"GPU-{i}", 1, 0) for i in range(20_000)])
    world.see_pod(make_pod("p", [app(1)], node="n1", allocation=rows))
    assert world.cache.snapshot().devices == before
    assert world.cache.orphans() == 19_999
