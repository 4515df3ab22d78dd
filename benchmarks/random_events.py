"""Random events on a cache, compared with the reference after every one of them.

It exists because wrong numbers come from histories that no test writes by hand: events missed, doubled and out of
order. It must not know how the cache counts; it keeps the objects that it showed to the cache, and the reference counts
those. Invariant: everything follows from the seed, so an event's number finds the difference again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from operator import is_
from typing import NamedTuple, TypeVar

import numpy as np

from accounting.answers.allocate import allocate
from accounting.answers.filter import filter_nodes
from accounting.answers.report import node_report, problem_counts, problems
from accounting.answers.verdicts import Verdict, Verdicts
from accounting.cards.score import score_nodes
from accounting.node import Device, Node, tie_order
from accounting.pod import Allocation, Container, ContainerKind, DeviceRequest, DeviceRow, Pod, UnreadableAllocation
from accounting.pod_record import record_pod
from accounting.pod_state import PodState
from accounting.policy import NodePolicy, Policies, parse_card_policy
from accounting.reference import fit as reference
from accounting.reference import state as reference_state
from accounting.reference.state import NodeState
from accounting.selection import Selection, parse_types
from accounting.state.cache import Cache
from accounting.state.snapshot import Snapshot
from accounting.status import CODES, Code, Invalid
from benchmarks.random_run import Chance, Summary, drive, same

NODES = tuple(f"n{i:02}" for i in range(12))
CARDS = 4
MOST_PODS = 90
#: The number of pods whose demand may come again.
_TEMPLATES = 6
MEMORY = 16
MODELS = ("NVIDIA A10", "NVIDIA A100", "Tesla T4")
Told = TypeVar("Told")
UNREADABLE = Invalid("annotation", "GPU", "must be uuid,type,memory,cores")
#: The reference knows no policies that look ahead; they have references of their own.
_NODE_POLICIES = [policy for policy in NodePolicy if not policy.looks_ahead]
CARD_POLICIES = ("spread", "spread", "binpack", "binpack,numa", "mutex", "numa", "mutex,binpack")


class CardNumbers(NamedTuple):
    """All that is derived for one card."""

    capacity: tuple[int, ...]
    requested: tuple[int, ...]
    exclusive: bool
    overcommitted: bool
    blocked: bool
    orphan: bool
    usable: bool
    load: int


class NodeNumbers(NamedTuple):
    """All that is derived for one node."""

    registered: bool
    blocked: bool
    requested_count: int
    cards: dict[str, CardNumbers]


class World:
    """A cache, and beside it the objects that were shown to it."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        """Booked pods by UID, with the last allocation that could be read."""
        self.states: dict[str, PodState] = {}
        self.seen: dict[str, Pod] = {}
        """Booked pods by UID, as their objects are now."""
        self.namespaces: set[str] = set()
        self._states: dict[str, tuple[Sequence[object], NodeState | None]] = {}
        """By node, the objects that its state was last computed of, and the state."""
        self._last_change: dict[str, object] = {}
        """By node, what stands for the last event that concerned it, of objects other than pods and the node."""
        self._empty: dict[str, NodeState] = {}
        """By node, its state without pods."""

    # -- events, told to the cache and noted ------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        self.cache.update_node(node)
        self.nodes[node.name] = node

    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)
        self.nodes.pop(name, None)

    def assume(self, pod: Pod) -> None:
        self.cache.assume_pod(record_pod(pod))
        if self.states.get(pod.uid) is not PodState.ADDED:
            self._book(pod, pod, PodState.ASSUMED)

    def finish_binding(self, uid: str) -> None:
        self.cache.finish_binding(uid)
        if self.states.get(uid) is PodState.ASSUMED:
            self.states[uid] = PodState.BOUND

    def forget(self, uid: str) -> None:
        self.cache.forget_pod(uid)
        if self.states.get(uid) is not PodState.ADDED:
            self._release(uid)

    def see_pod(self, pod: Pod) -> None:
        """Show a pod as the watch does."""
        self.cache.update_pod(record_pod(pod))
        known, state = self.pods.get(pod.uid), self.states.get(pod.uid)
        if pod.terminal or (pod.node is None and state is PodState.ADDED):
            self._release(pod.uid)
        elif pod.node is not None:
            kept = pod
            if known is not None and known.node == pod.node and state is not PodState.ASSUMED:
                kept = pod._replace(allocation=known.allocation) if readable(known) and not readable(pod) else pod
            self._book(pod, kept, PodState.ADDED)

    def remove_pod(self, uid: str) -> None:
        self.cache.remove_pod(uid)
        self._release(uid)

    def _book(self, seen: Pod, kept: Pod, state: PodState) -> None:
        self.seen[seen.uid], self.pods[seen.uid], self.states[seen.uid] = seen, kept, state
        self.namespaces.add(seen.namespace)

    def _release(self, uid: str) -> None:
        for known in (self.seen, self.pods, self.states):
            known.pop(uid, None)

    # -- comparing ----------------------------------------------------------------------------------------------------

    def check(self, names: Iterable[str] | None = None) -> None:
        """Compare these nodes, or everything."""
        snapshot = self.cache.snapshot()
        for name in self.names() if names is None else names:
            state = self.state_of(name)
            want = None if state is None else expected_numbers(state)
            same(f"node {name}", numbers(self.cache, snapshot, name), want)
        if names is None:
            self._check_sums()
            same("cells without a card", _stray_cells(self.cache, snapshot), [])

    def _check_sums(self) -> None:
        """Compare what concerns more than one node."""
        cache, states = self.cache, {name: self.state_of(name) for name in self.names()}
        same("nodes", cache.node_names(), [*states])
        same("states", {uid: cache.state(uid) for uid in cache.pods}, self.states)
        used = dict.fromkeys(self.namespaces, (0, 0, 0)) | reference_state.namespaces_used(self.pods.values())
        same("used", {name: cache.used(name) for name in used}, used)
        orphans = sum(card.orphan for state in states.values() if state for card in state.cards.values())
        same("orphans", cache.orphans(), orphans)
        same(
            "problems",
            {code: n for code, n in problem_counts(cache).items() if n},
            Counter(p.code for p in problems(cache)),
        )

    def names(self) -> list[str]:
        return sorted(self.nodes.keys() | {str(pod.node) for pod in self.pods.values()})

    def state_of(self, name: str, *, without: str = "") -> NodeState | None:
        """Return the reference's state of a node. It follows from the node's objects alone."""
        on = [pod for pod in self.pods.values() if pod.node == name and pod.uid != without]
        objects = self.nodes.get(name), self._last_change.get(name), *on
        last, state = self._states.get(name, ((), None))
        if len(last) != len(objects) or not all(map(is_, last, objects)):
            state = self.new_state_of(name, on) if on or name in self.nodes else None
            self._states[name] = objects, state
        return state

    def new_state_of(self, name: str, on: Sequence[Pod]) -> NodeState:
        """Compute it. `on`: the pods on the node."""
        return reference_state.node_state(self.nodes.get(name), on)

    def empty_state_of(self, name: str) -> NodeState:
        """Return the reference's state of a node without pods."""
        node = self.nodes.get(name)
        last = self._empty.get(name)
        if last is None or last.node is not node:
            last = self._empty[name] = reference_state.node_state(node, [])
        return last


def readable(pod: Pod) -> bool:
    """Whether what the pod holds is known: its rows, or nothing asked and nothing written."""
    return isinstance(pod.allocation, tuple) or (pod.allocation is None and not pod.asks)


def numbers(cache: Cache, snapshot: Snapshot, name: str) -> NodeNumbers | None:
    """Return what the cache says of a node."""
    row = snapshot.rows.get(name)
    if row is None:
        return None
    nodes, held = snapshot.nodes, snapshot.requested
    cards = {
        uuid: CardNumbers(
            (int(nodes.slots[at, row]), int(nodes.memory[at, row]), int(nodes.cores[at, row])),
            (int(held.slots[at, row]), int(held.memory[at, row]), int(held.cores[at, row])),
            exclusive=bool(held.exclusive[at, row]),
            overcommitted=bool(snapshot.overcommitted[at, row]),
            blocked=bool(snapshot.blocked[at, row]),
            orphan=False,
            usable=bool(held.usable[at, row]),
            load=int(held.load[at, row]),
        )
        for uuid, at in cache.positions(name).items()
    }
    for card in node_report(cache, name):
        if card.device is None:
            have = tuple(card.capacity), tuple(card.requested), card.exclusive, card.overcommitted
            cards[card.uuid] = CardNumbers(*have, blocked=False, orphan=True, usable=False, load=0)
        else:
            requested, over = cards[card.uuid].requested, cards[card.uuid].overcommitted
            same(f"{card.uuid} in the report", (tuple(card.requested), card.overcommitted), (requested, over))
    return NodeNumbers(bool(nodes.registered[row]), bool(held.node_blocks[row]), int(held.count[row]), cards)


def expected_numbers(state: NodeState) -> NodeNumbers:
    """Return what the reference says of a node."""
    cards = {}
    cordoned = frozenset() if state.node is None else state.node.cordoned
    for uuid, card in state.cards.items():
        closed = card.orphan or card.blocked or card.exclusive or card.overcommitted or uuid in cordoned
        cards[uuid] = CardNumbers(
            tuple(card.capacity),
            tuple(card.requested),
            exclusive=card.exclusive,
            overcommitted=card.overcommitted,
            blocked=card.blocked,
            orphan=card.orphan,
            usable=card.device.healthy and not closed and card.capacity.slots > card.requested.slots,
            load=reference.load_of(card.requested, card.capacity, Policies().weights),
        )
    return NodeNumbers(state.node is not None, state.blocked, state.requested_count, cards)


def _stray_cells(cache: Cache, snapshot: Snapshot) -> list[str]:
    """Return the arrays in which a cell without a card is not 0."""
    known = np.zeros((snapshot.devices, snapshot.columns), np.bool_)
    for name, row in snapshot.rows.items():
        known[list(cache.positions(name).values()), row] = True
    rows = np.isin(np.arange(snapshot.columns), list(snapshot.rows.values()))
    bundles = (snapshot.nodes, snapshot.requested)
    arrays = {each.name: getattr(bundle, each.name) for bundle in bundles for each in fields(bundle)}
    of_cards = known.shape
    return [
        name
        for name, array in arrays.items()
        if (array[~known] if array.shape == of_cards else array[..., ~rows]).any()
    ]


# -- the driver --------------------------------------------------------------------------------------------------------


def run(events: int, seed: int, check_every: int, progress: Callable[[int], object] | None = None) -> Summary:
    """Send that many events; the nodes concerned are compared after each, everything after each `check_every`."""
    return drive(Driver(seed), seed, events, check_every, progress)


class Driver(Chance):
    """Draws events. Each method shows one to the world and returns the nodes concerned."""

    def __init__(self, seed: int, world: World | None = None) -> None:
        super().__init__(seed)
        self.world = World() if world is None else world
        self.serial = 0
        self.kinds: dict[Callable[[], set[str]], int] = {
            self.schedule: 30,
            self.ask_again: 3,
            self.see_stranger: 6,
            self.confirm: 18,
            self.change: 20,
            self.end: 20,
            self.change_node: 3,
        }
        self.templates: deque[Pod] = deque(maxlen=_TEMPLATES)
        self.verdicts = Verdicts()
        for name in NODES:
            self.world.put_node(self.node(name))

    def step(self) -> str:
        grows = self.schedule, self.see_stranger
        kind = self.kind(self.kinds)
        if len(self.world.pods) > MOST_PODS and kind in grows:
            kind = self.end
        if not self.world.pods and kind not in (*grows, self.change_node):
            kind = self.schedule
        concerned = kind()
        if self.is_looked_at():
            self.world.check(sorted(concerned))
        return kind.__name__

    def is_looked_at(self) -> bool:
        """Whether the nodes that an event concerned are compared right after it."""
        return True

    def check(self) -> None:
        self.world.check()

    def pods(self) -> int:
        return len(self.world.pods)

    def tell(self, event: Callable[[Told], None], value: Told) -> None:
        """Events may come twice."""
        for _ in range(2 if self.chance(10) else 1):
            event(value)

    # -- questions -----------------------------------------------------------------------------------------------------

    def schedule(self) -> set[str]:
        """A new pod is filtered, scored, given cards and assumed."""
        pod = self.new_pod()
        snapshot = self.world.cache.snapshot()
        rows = snapshot.rows_of(NODES)
        # Only a question about most rows is answered from earlier verdicts.
        repeated = np.tile(rows, snapshot.columns // len(rows))
        verdict = filter_nodes(snapshot, pod, repeated, verdicts=self.verdicts).of(np.arange(len(rows)))
        for at in self.random.sample(range(len(NODES)), 2):
            self.compare(pod, NODES[at], verdict, at)
        feasible = np.flatnonzero(verdict.feasible & (rows >= 0))
        if not len(feasible):
            return set()
        scores = score_nodes(snapshot, rows[feasible], pod.policies.node)
        best = [NODES[feasible[place]] for place, _ in scores]
        if self.chance(8):
            states = {name: state for name in NODES if (state := self.world.state_of(name))}
            order = reference.node_order(states, [NODES[at] for at in feasible], pod.policies.node)
            same("the best nodes", best, order[: len(best)])
        name = best[0]
        self.world.assume(pod._replace(node=name, allocation=self.allocated(self.world.cache, pod, name)))
        return {name}

    def ask_again(self) -> set[str]:
        """A booked pod is asked about again; its own booking must not count."""
        pod, cache = self.some_pod(), self.world.cache
        name, snapshot = str(pod.node), cache.snapshot()
        verdict = filter_nodes(snapshot, pod, snapshot.rows_of([name]), cache.own_row(pod.uid))
        self.compare(pod, name, verdict, 0)
        if verdict.feasible[0] and name in cache.nodes:
            # A pod that asks for nothing also fits a node that is gone, but there is no row to place it on.
            self.allocated(cache.node_without(pod.uid), pod, name)
        return set()

    def compare(self, pod: Pod, name: str, verdict: Verdict, at: int) -> None:
        empty = self.world.empty_state_of(name)
        found = reference.fit(self.world.state_of(name, without=pod.uid) or empty, pod)
        code = found if isinstance(found, Code) else None
        hopeless = code is not None and isinstance(reference.fit(empty, pod), Code)
        have = None if verdict.feasible[at] else CODES[int(verdict.codes[at])]
        same(f"{pod} on {name}", (have, bool(verdict.unresolvable[at])), (code, hopeless))

    def allocated(self, cache: Cache, pod: Pod, name: str) -> Allocation:
        snapshot, uuids = cache.snapshot(), {at: uuid for uuid, at in cache.positions(name).items()}
        placement = allocate(snapshot, pod, snapshot.rows[name], uuids)
        state = self.world.state_of(name, without=pod.uid)
        want = None if state is None else reference.fit(state, pod)
        same(f"{pod} on {name}", None if placement is None else placement.allocation, want)
        assert placement is not None
        return placement.allocation

    # -- events --------------------------------------------------------------------------------------------------------

    def see_stranger(self) -> set[str]:
        """A pod that something else bound; its cards may be taken, gone or unreadable."""
        pod = self.new_pod()._replace(node=self.random.choice(NODES), inits_over=self.chance(2))
        self.tell(self.world.see_pod, pod._replace(allocation=self.allocation(pod)))
        return {str(pod.node)}

    def confirm(self) -> set[str]:
        """The next step of a bind: accepted, seen, or seen too early as still pending."""
        pod = self.some_pod()
        if self.chance(2):
            self.tell(self.world.finish_binding, pod.uid)
        else:
            self.tell(self.world.see_pod, pod._replace(node=None, allocation=None) if self.chance(6) else pod)
        return {str(pod.node)}

    def change(self) -> set[str]:
        """The pod's status, its annotation or even its node changes, or its bind is tried again."""
        pod, kind = self.some_pod(), self.random.randrange(20)
        touched, event = {str(pod.node)}, self.world.see_pod
        if kind < 12:
            pod = pod._replace(inits_over=not pod.inits_over)
        elif kind < 15:
            pod = pod._replace(allocation=None if kind == 12 else self.unreadable())
        elif kind < 17:
            pod = pod._replace(allocation=self.allocation(pod))
        elif kind == 17:
            pod = pod._replace(node=self.random.choice(NODES))
            pod = pod._replace(allocation=self.unreadable()) if self.chance(2) else pod
        else:
            event = self.world.assume
        self.tell(event, pod)
        return touched | {str(pod.node)}

    def end(self) -> set[str]:
        """The pod succeeds, its bind is refused, or its object is gone; a new pod may already have its name."""
        pod = self.some_pod()
        kind = self.random.randrange(8)
        if kind < 3:
            self.tell(self.world.see_pod, pod._replace(terminal=True))
        elif kind == 3:
            self.tell(self.world.forget, pod.uid)
        else:
            if self.chance(4):
                self.world.see_pod(pod._replace(uid=f"{pod.uid}+"))
            self.tell(self.world.remove_pod, pod.uid)
        return {str(pod.node)}

    def change_node(self) -> set[str]:
        """A node registers anew, loses or regains cards, or goes away."""
        name = self.random.choice(NODES)
        if self.chance(10):
            self.tell(self.world.remove_node, name)
        else:
            self.tell(self.world.put_node, self.node(name))
        return {name} & {*self.world.names()}

    # -- objects -------------------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        """Return a node: mostly healthy cards of a few sizes, now and then one missing, sick, cordoned or doubled."""
        uuids = [f"GPU-{name}-{i}" for i in range(CARDS) if not self.chance(12)] + ["GPU-roaming"] * self.chance(12)
        cards = [self.device(uuid, index) for index, uuid in enumerate(uuids)]
        cordoned, doubled = (frozenset(uuid for uuid in uuids if self.chance(25)) for _ in range(2))
        count = self.random.choice((None, None, None, 12, 0))
        return Node(name, tuple(sorted(cards, key=tie_order)), cordoned, doubled, count)

    def device(self, uuid: str, index: int) -> Device:
        memory = self.random.choice((MEMORY, MEMORY, MEMORY // 2, MEMORY * 2))
        cores = self.random.choice((100, 100, 100, 200, 50))
        numa, healthy = self.random.randrange(2), not self.chance(25)
        slots, model = self.random.choice((4, 8)), self.random.choice(MODELS)
        return Device(uuid, index, slots, memory, cores, model, numa, "hami-core", healthy)

    def new_pod(self) -> Pod:
        self.serial += 1
        if self.templates and self.chance(2):
            # For a demand that comes again, only changed nodes are judged.
            return self.random.choice(self.templates)._replace(uid=f"u{self.serial}", name=f"p{self.serial}")
        pod = self.pod_of_its_own()
        self.templates.append(pod)
        return pod

    def pod_of_its_own(self) -> Pod:
        kinds = sorted(self.random.choices([*ContainerKind], k=self.random.randint(1, 5)), key=ContainerKind.APP.__eq__)
        containers = tuple(Container(f"c{i}", kind, self.request()) for i, kind in enumerate(kinds))
        return Pod(
            uid=f"u{self.serial}",
            namespace=self.random.choice(("a", "b", "c")),
            name=f"p{self.serial}",
            containers=containers,
            selection=Selection(numa_bind=self.chance(5), use_types=parse_types(MODELS[0]) if self.chance(8) else ()),
            policies=Policies(self.random.choice(_NODE_POLICIES), parse_card_policy(self.random.choice(CARD_POLICIES))),
        )

    def request(self) -> DeviceRequest | None:
        if self.chance(6):
            return None
        count = 2 if self.chance(5) else 1
        cores = 100 if self.chance(15) else self.random.choice((0, 0, 10, 20, 30))
        if self.chance(8):
            return DeviceRequest(count, 0, self.random.choice((10, 33, 50, 100)), cores)
        return DeviceRequest(count, self.random.randint(1, MEMORY // 2), 0, cores)

    def allocation(self, pod: Pod) -> Allocation | UnreadableAllocation:
        if self.chance(6):
            return self.unreadable()
        rows = []
        # Now and then nothing tells which container a row belongs to.
        for _ in range(len(pod.containers) + self.chance(8)):
            uuids = self.random.sample(self.uuids(str(pod.node)), self.random.randint(0, 2))
            cores = self.random.choice((0, 10, 20, 100 if self.chance(4) else 5))
            rows.append(tuple(DeviceRow(uuid, self.random.randint(0, MEMORY // 2), cores) for uuid in uuids))
        return tuple(rows)

    def unreadable(self) -> UnreadableAllocation:
        uuids = self.uuids(self.random.choice(NODES))
        return UnreadableAllocation(tuple(self.random.sample(uuids, self.random.randint(0, 2))), UNREADABLE)

    def uuids(self, name: str) -> list[str]:
        return [*(f"GPU-{name}-{i}" for i in range(CARDS)), "GPU-roaming"]

    def some_pod(self) -> Pod:
        return self.world.pods[self.random.choice(list(self.world.pods))]
