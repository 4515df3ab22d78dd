"""The live state: nodes, the pods on them, and what every card has left.

Why it exists: it mirrors kube-scheduler's cache and speaks its language (assume, finish binding, forget, add, update,
remove, snapshot). It must not decide anything: it only records. Invariants: keyed by pod UID, every change is symmetric
and idempotent, and the numbers of a card are the sums over the records of the pods on its node, whatever the order of
events was. Source: kube-scheduler's pkg/scheduler/backend/cache/interface.go.
"""

from collections.abc import Iterator, KeysView, Mapping, Sequence

from accounting.errors import InvariantViolation
from accounting.holdings import Resources, Total
from accounting.node import Node
from accounting.pod_record import PodRecord, State
from accounting.pod_state import BOOKINGS, PodEvent, PodState
from accounting.quota_scope import PodScope, Selector
from accounting.state.claimed import Claimed
from accounting.state.dump import Dump, NodeState, name_order
from accounting.state.moments import Moments
from accounting.state.requested import Requested
from accounting.state.rows import NodeRows
from accounting.state.snapshot import Snapshot
from accounting.status import Problem
from accounting.vendor import DEFAULT_VENDOR_KEY


class Cache:
    """Nodes and pod records, and the device table that follows from them."""

    def __init__(self, vendors: Sequence[str] = (DEFAULT_VENDOR_KEY,), rows: NodeRows | None = None) -> None:
        """`vendors`: the keys of those whose cards nodes may have and pods may ask for. `rows`: their table."""
        self._nodes: dict[str, Node] = {}
        self._rows = NodeRows(vendors) if rows is None else rows  # also of nodes that are gone but still hold pods
        self._requested = Requested(self._rows, self._nodes)
        self._pods: dict[str, PodRecord] = {}  # pod UID -> record
        self._states: dict[str, PodState] = {}  # pod UID -> state
        self._pods_on: dict[str, dict[str, PodRecord]] = {}  # node name -> pod UID -> record
        self._problems: dict[str, Problem] = {}  # pod UID -> what is wrong with its record
        self._cardless: dict[str, tuple[str, int]] = {}  # UID of a pod without cards -> its node, its CPU
        self._cardless_cpu: dict[str, int] = {}  # node name -> CPU of its pods without cards
        self._moments = Moments(self.node_state)  # of nodes
        self.claimed = Claimed(self._rows, self._moments.keep, self._changed)
        """What DRA claims hold; written by who knows the claims."""
        self._snapshot: Snapshot | None = None
        self._node_problems: dict[str, tuple[Problem, ...]] = {}  # node name -> what is wrong with its object
        self._generation = 0

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Grows with every change of state; equal generations mean equal answers."""
        return self._generation

    @property
    def has_mig(self) -> bool:
        """Whether any card was ever in MIG mode. If not, none is now."""
        return self._rows.has_mig

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The node objects by name."""
        return self._nodes

    @property
    def pods(self) -> Mapping[str, PodRecord]:
        """The records of all pods that are on a node, by UID."""
        return self._pods

    @property
    def node_problems(self) -> Mapping[str, Sequence[Problem]]:
        """What is wrong with node objects, by name; nodes without a problem are left out."""
        return self._node_problems

    @property
    def pod_problems(self) -> Sequence[Problem]:
        """What is wrong with pods' records and with claims, in no order."""
        return [*self._problems.values(), *self._requested.slices.problems(), *self.claimed.problems()]

    def state(self, uid: str) -> PodState | None:
        """Return how far a pod's booking is confirmed; None if it has none."""
        return self._states.get(uid)

    def pods_on(self, node: str) -> Iterator[PodRecord]:
        """Yield the records on a node, sorted by namespace, name and UID."""
        return iter(sorted(self._pods_on.get(node, {}).values(), key=name_order))

    def card_size(self, node: str, uuid: str) -> Resources | None:
        """Return what a card registers; None if its node registers no such card."""
        known = self._nodes.get(node)
        device = None if known is None else self._rows.device_at(known, uuid)
        return None if device is None else Resources(device.slots, device.memory, device.cores)

    def is_overcommitted(self, node: str, uuid: str) -> bool:
        """Whether a card that its node registers is over-committed."""
        position = self._rows.positions(node).get(uuid)
        return position is not None and self._rows.table.is_overcommitted(position, self._rows[node])

    def positions(self, node: str) -> Mapping[str, int]:
        """Return the device position of every card that a node registers, by UUID."""
        return self._rows.positions(node)

    def node_names(self) -> list[str]:
        """Return every node that has cards or pods, sorted; also nodes whose object is gone."""
        return self._rows.names()

    @property
    def vendors(self) -> Sequence[str]:
        """The keys of the vendors."""
        return tuple(self._rows.vendors)

    def used(self, namespace: str, selector: Selector = (), vendor: str | None = None) -> Total:
        """Return what a namespace is charged now for its pods, or for those that a quota's selector matches.

        `vendor`: key of the vendor whose cards count; by default the first vendor's.
        """
        return self._requested.total(namespace, selector, 0 if vendor is None else self._rows.vendors[vendor])

    def charges(self, namespace: str) -> Mapping[tuple[PodScope, str], int]:
        """Return all that a namespace is charged now, of all vendors, by pod scope and name of the charge."""
        return self._requested.charges(namespace)

    @property
    def cardless_pods(self) -> KeysView[str]:
        """The UIDs of the pods that are counted for their CPU alone."""
        return self._cardless.keys()

    def is_cardless(self, uid: str) -> bool:
        """Whether a pod is counted for its CPU alone."""
        return uid in self._cardless

    def overlapping(self, node: str) -> frozenset[str]:
        """Return a node's cards in MIG mode on which instances of several pods lie on the same slices, by UUID."""
        return self._requested.slices.overlapping(node)

    def orphans(self) -> int:
        """Return how many cards pods hold that their nodes do not register."""
        return self._requested.orphans()

    def overcommitted_cards(self, uid: str) -> tuple[str, ...]:
        """Return the over-committed ones among the registered cards that a pod holds."""
        record = self._pods.get(uid)
        if record is None:
            return ()
        node = str(record.node)
        row, positions, table = self._rows[node], self._rows.positions(node), self._rows.table
        held = [use.uuid for use in record.held if use.uuid in positions]
        return tuple(uuid for uuid in held if table.is_overcommitted(positions[uuid], row))

    def snapshot(self) -> Snapshot:
        """Return the state as it is now; later changes do not show in it."""
        if self._snapshot is None or self._snapshot.generation != self._generation:
            self._snapshot = self._rows.snapshot(self._generation, self._snapshot)
        return self._snapshot

    def dump(self) -> Dump:
        """Return the state as it is now, for a report that is made while the cache goes on."""
        return Dump(tuple(self.node_names()), self.pod_problems, self._moments.begin())

    def node_state(self, node: str) -> NodeState:
        """Return everything that is known of a node."""
        return NodeState(
            self._nodes.get(node),
            tuple(self._pods_on.get(node, {}).values()),
            self.overlapping(node) if self.has_mig else frozenset(),
            self.claimed.on(node),
            self.claimed.unmapped(node),
        )

    def node_without(self, uid: str) -> "Cache":
        """Return a cache with only a booked pod's node, as the node is without that pod."""
        node = str(self._pods[uid].node)
        alone = Cache(rows=self._rows.beside())
        if node in self._nodes:
            alone.add_node(self._nodes[node])
        for record in self.pods_on(node):
            if record.uid != uid:
                alone.add_pod(record)
        self.claimed.copy_to(alone.claimed, node)
        return alone

    def own_row(self, uid: str) -> tuple[int, Snapshot] | None:
        """Return the row where a pod is booked and that node's state without it; None if it has no booking."""
        record = self._pods.get(uid)
        if record is None or record.node not in self._nodes:
            return None
        return self._rows[record.node], self.node_without(uid).snapshot()

    # -- pods -----------------------------------------------------------------------------------------------------

    def assume_pod(self, record: PodRecord) -> None:
        """Book a pod whose bind is being decided. It must not be booked on another node already.

        A pod that the watch showed bound keeps what the watch showed.
        """
        known = self._pods.get(record.uid)
        if record.node is None or (known is not None and known.node != record.node):
            message = f"pod {record.key} ({record.uid}) cannot be assumed on {record.node}"
            raise InvariantViolation(message)
        if self._next(record.uid, PodEvent.ASSUME) is PodState.ASSUMED:
            self._put(record, PodState.ASSUMED)

    def finish_binding(self, uid: str) -> None:
        """Note that the Binding of an assumed pod was accepted."""
        state = self._next(uid, PodEvent.FINISH)
        if state is not None:
            self._states[uid] = state

    def forget_pod(self, uid: str) -> None:
        """Take back the booking of a pod whose bind failed for certain. A pod that the watch showed bound stays."""
        if self._next(uid, PodEvent.FORGET) is None:
            self._drop(uid)

    def add_pod(self, record: PodRecord) -> None:
        """Record a pod as it is now. The same as `update_pod`, because events can be missed or repeated."""
        self.update_pod(record)

    def update_pod(self, record: PodRecord) -> None:
        """Record a pod as it is now: its node, its state, its cards.

        A pod without a node or in a terminal phase holds nothing and has no record. An allocation that can no longer be
        read keeps the cards of the last one that could (design 2.2; after a restart the block applies instead).
        """
        event = PodEvent.SEEN_UNBOUND if record.node is None else PodEvent.SEEN_BOUND
        known, state = self._pods.get(record.uid), self._states.get(record.uid)
        if self._next(record.uid, PodEvent.ENDED if record.state is State.RELEASED else event) is None:
            self._drop(record.uid)
            return
        if event is PodEvent.SEEN_UNBOUND:
            return
        if not record.readable and known is not None and known.readable and known.node == record.node:
            # An assumption is not a reading. A pod that is bound without our rows was bound by somebody else.
            record = record if state is PodState.ASSUMED else record.with_allocation_of(known)
        self._put(record, PodState.ADDED)

    def remove_pod(self, uid: str) -> None:
        """Record that the pod object is gone."""
        self._drop(uid)

    def put_cardless_pod(self, uid: str, node: str, cpu_milli: int) -> None:
        """Record a bound pod that neither asks for nor holds cards: it leaves less CPU to those that do."""
        known = self._cardless.get(uid)
        if known == (node, cpu_milli):
            return
        self.remove_cardless_pod(uid)
        self._cardless[uid] = node, cpu_milli
        self._count_cardless(node, cpu_milli)

    def remove_cardless_pod(self, uid: str) -> None:
        """Record that such a pod has ended or is gone."""
        known = self._cardless.pop(uid, None)
        if known is not None:
            self._count_cardless(known[0], -known[1])

    # -- nodes ----------------------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        """Record a node as it is now; the same as `update_node`."""
        self.update_node(node)

    def update_node(self, node: Node) -> None:
        """Record a node as it is now, and count what its pods hold on the cards that it has now."""
        if self._nodes.get(node.name) == node:
            return
        self._moments.keep(node.name)
        self._nodes[node.name] = node
        if node.problems:
            self._node_problems[node.name] = tuple(node.problems)
        else:
            self._node_problems.pop(node.name, None)
        self._rebuild(node.name)

    def remove_node(self, name: str) -> None:
        """Record that the node object is gone; its pods stay, and the cards that they hold are orphans."""
        if name in self._nodes:
            self._moments.keep(name)
            del self._nodes[name]
            self._node_problems.pop(name, None)
            self._rebuild(name)

    # -- recording ------------------------------------------------------------------------------------------------

    def _put(self, record: PodRecord, state: PodState) -> None:
        known = self._pods.get(record.uid)
        self._states[record.uid] = state
        if known == record:
            return
        self._moments.keep(str(record.node))
        if known is not None:
            self._moments.keep(str(known.node))
            self._requested.count(known, -1)
        self._pods[record.uid] = record
        if record.problem is not None:
            self._problems[record.uid] = record.problem
        elif known is not None:
            self._problems.pop(record.uid, None)
        node = str(record.node)
        pods = self._pods_on.get(node)
        if pods is None:
            pods = self._pods_on[node] = {}
            if node not in self._rows:
                self._take_row(node)
                self.claimed.count_row(node)
        pods[record.uid] = record
        self._requested.count(record, 1)
        if known is not None and known.node != record.node:
            self._leave(known)
        self._generation += 1

    def _changed(self) -> None:
        self._generation += 1

    def _count_cardless(self, node: str, cpu_milli: int) -> None:
        if not cpu_milli:
            return
        total = self._cardless_cpu.get(node, 0) + cpu_milli
        if total:
            self._cardless_cpu[node] = total
        else:
            del self._cardless_cpu[node]
        row = self._rows.get(node)
        if row is not None:
            self._rows.table.add_cpu(row, cpu_milli)
            self._generation += 1

    def _next(self, uid: str, event: PodEvent) -> PodState | None:
        return BOOKINGS[self._states.get(uid), event]

    def _drop(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        self._states.pop(uid, None)
        self._problems.pop(uid, None)
        if known is not None:
            self._moments.keep(str(known.node))
            self._requested.count(known, -1)
            self._leave(known)
            self._generation += 1

    def _leave(self, record: PodRecord) -> None:
        """Take a record, already uncounted, off its node; a node that is gone and empty loses its row."""
        node = str(record.node)
        pods = self._pods_on[node]
        del pods[record.uid]
        if pods:
            return
        del self._pods_on[node]
        if node not in self._nodes:
            self._rows.give_back(node)

    def _rebuild(self, name: str) -> None:
        """Rebuild a node's row from its object, and count its pods again."""
        self._generation += 1
        node, pods = self._nodes.get(name), self._pods_on.get(name, {})
        if node is None and not pods:
            self._rows.give_back(name)
            return
        self._requested.leave_node(name, pods)
        self._take_row(name)
        if node is not None:
            self._rows.lay_out(node)
        self.claimed.count_row(name)
        for uid in sorted(pods):
            self._requested.count(pods[uid], 1)

    def _take_row(self, name: str) -> None:
        """Give a node an empty row; what its pods without cards request is counted there."""
        row = self._rows.clear(name)
        self._rows.table.add_cpu(row, self._cardless_cpu.get(name, 0))
