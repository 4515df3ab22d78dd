"""The live state: nodes, the pods on them, and what every card has left.

Why it exists: it mirrors kube-scheduler's cache and speaks its language (assume, finish binding, forget, add, update,
remove, snapshot). It must not decide anything: it only records. Invariants: keyed by pod UID, every change is symmetric
and idempotent, and the numbers of a card are the sums over the records of the pods on its node, whatever the order of
events was. Source: kube-scheduler's pkg/scheduler/backend/cache/interface.go.
"""

from collections.abc import Collection, Iterable, Iterator, KeysView, Mapping, Sequence

from accounting.device_table import DeviceTable
from accounting.errors import InvariantViolation
from accounting.holdings import Total
from accounting.mig import MigLayout
from accounting.node import Node
from accounting.pod_record import PodRecord, State
from accounting.pod_state import TRANSITIONS, PodEvent, PodState
from accounting.quota_scope import Selector
from accounting.slices import SliceTable
from accounting.snapshot import Snapshot, Topology
from accounting.status import Problem
from accounting.usage import NamespaceSums, charge_names
from accounting.vendor import DEFAULT_VENDOR_KEY


class Cache:
    """Nodes and pod records, and the device table that follows from them."""

    def __init__(self, vendors: Sequence[str] = (DEFAULT_VENDOR_KEY,)) -> None:
        """`vendors`: the keys of those whose cards nodes may have and pods may ask for."""
        self._vendors = {key: number for number, key in enumerate(vendors)}
        self._table = DeviceTable(len(vendors))
        self._nodes: dict[str, Node] = {}
        self._rows: dict[str, int] = {}  # node name -> row; also nodes that are gone but still hold pods
        self._rows_shared = False
        self._free_rows: list[int] = []
        self._positions: dict[str, dict[str, int]] = {}  # node name -> card UUID -> device position
        self._orphans: dict[str, dict[str, int]] = {}  # node name -> UUID of a card it does not register -> holders
        self._pods: dict[str, PodRecord] = {}  # pod UID -> record
        self._states: dict[str, PodState] = {}  # pod UID -> state
        self._pods_on: dict[str, dict[str, PodRecord]] = {}  # node name -> pod UID -> record
        self._problems: dict[str, Problem] = {}  # pod UID -> what is wrong with its record
        self._used = NamespaceSums()  # what each namespace's pods are charged
        self._cardless: dict[str, tuple[str, int]] = {}  # UID of a pod without cards -> its node, its CPU
        self._cardless_cpu: dict[str, int] = {}  # node name -> CPU of its pods without cards
        self._layouts: dict[MigLayout, int] = {(): 0}
        self._slices = SliceTable()
        self._ids: dict[str, int] = {"": 0}  # interned UUIDs, models and modes
        self._topologies: dict[Topology, int] = {(): 0}  # links between cards, interned
        self._topology_list: list[Topology] = [()]  # the same by number; it only grows
        self._snapshot: Snapshot | None = None
        self._generation = 0
        self._node_generation = 0

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """Grows with every change of state; equal generations mean equal answers."""
        return self._generation

    @property
    def has_mig(self) -> bool:
        """Whether any card ever was in MIG mode, so that there may be one now."""
        return len(self._layouts) > 1

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The node objects by name."""
        return self._nodes

    @property
    def pods(self) -> Mapping[str, PodRecord]:
        """The records of all pods that are on a node, by UID."""
        return self._pods

    @property
    def pod_problems(self) -> Collection[Problem]:
        """What is wrong with pods' records, in no order."""
        return [*self._problems.values(), *self._slices.problems()]

    def state(self, uid: str) -> PodState | None:
        """Return how far a pod's booking is confirmed; None if it has none."""
        return self._states.get(uid)

    def pods_on(self, node: str) -> Iterator[PodRecord]:
        """Yield the records on a node, sorted by namespace, name and UID."""
        records = self._pods_on.get(node, {}).values()
        return iter(sorted(records, key=lambda record: (record.namespace, record.name, record.uid)))

    def positions(self, node: str) -> Mapping[str, int]:
        """Return the device position of every card that a node registers, by UUID."""
        return self._positions.get(node, {})

    def node_names(self) -> list[str]:
        """Return every node that has cards or pods, sorted; also nodes whose object is gone."""
        return sorted(self._rows)

    @property
    def vendors(self) -> Sequence[str]:
        """The keys of the vendors."""
        return tuple(self._vendors)

    def used(self, namespace: str, selector: Selector = (), vendor: str | None = None) -> Total:
        """Return what the namespace's pods, or those that a quota's selector takes, are charged now.

        `vendor`: key of the one whose cards are meant; the first one's are if it is not given.
        """
        number = 0 if vendor is None else self._vendors[vendor]
        sums = self._used.of(namespace, selector)
        return Total(*(sums.get(name, 0) for name in charge_names(number)))

    def charges(self, namespace: str) -> Mapping[str, int]:
        """Return everything that the namespace's pods are charged now, of all vendors, by name."""
        return self._used.of(namespace)

    @property
    def cardless_pods(self) -> KeysView[str]:
        """The UIDs of the pods that are counted for their CPU alone."""
        return self._cardless.keys()

    def overlapping(self, node: str) -> frozenset[str]:
        """Return a node's cards in MIG mode on which instances of several pods lie on the same slices, by UUID."""
        return self._slices.overlapping(node)

    def orphans(self) -> int:
        """Return how many cards pods hold that their nodes do not register."""
        return sum(map(len, self._orphans.values()))

    def overcommitted_cards(self, uid: str) -> tuple[str, ...]:
        """Return the over-committed ones among the registered cards that a pod holds."""
        record = self._pods.get(uid)
        if record is None:
            return ()
        node, found = str(record.node), []
        row, nodes, requested = self._rows[node], self._table.nodes, self._table.requested
        for use in record.held:
            position = self._positions[node].get(use.uuid)
            if position is None:
                continue
            cell = position, row
            if (
                requested.slots[cell] > nodes.slots[cell]
                or requested.memory[cell] > nodes.memory[cell]
                or requested.cores[cell] > nodes.cores[cell]
                or (requested.exclusive[cell] and requested.holders[cell] > 1)
                or requested.slices[cell] < 0
            ):
                found.append(use.uuid)
        return tuple(found)

    def snapshot(self) -> Snapshot:
        """Return the state as it is now; later changes do not show in it."""
        if self._snapshot is None or self._snapshot.generation != self._generation:
            self._rows_shared = True
            self._snapshot = Snapshot(
                self._generation,
                self._node_generation,
                self._rows,
                self._ids,
                (self._table.share_nodes(), self._table.requested.copy()),
                self._snapshot,
            )
            self._snapshot.vendors, self._snapshot.layouts = self._vendors, tuple(self._layouts)
            self._snapshot.topologies = self._topology_list
            self._snapshot.stamps = self._table.stamps.copy()
        return self._snapshot

    def node_without(self, uid: str) -> "Cache":
        """Return a cache of a booked pod's node alone, as it is without that pod."""
        node = str(self._pods[uid].node)
        alone = Cache(self.vendors)
        alone._layouts = self._layouts
        # Interned numbers only grow, so both caches may use one table of them.
        alone._ids = self._ids
        alone._topologies, alone._topology_list = self._topologies, self._topology_list
        if node in self._nodes:
            alone.add_node(self._nodes[node])
        for record in self.pods_on(node):
            if record.uid != uid:
                alone.add_pod(record)
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

        A pod that was seen bound keeps what was seen.
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
        """Take back the booking of a pod whose bind failed for certain; a pod that was seen bound stays."""
        if self._next(uid, PodEvent.FORGET) is None:
            self._drop(uid)

    def add_pod(self, record: PodRecord) -> None:
        """Record a pod as it is now; the same as `update_pod`, since events may be missed or come twice."""
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
            # An assumption is no reading: that the pod is bound without our rows means that something else bound it.
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
        if cpu_milli:
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
        """Record a node as it is now; what its pods hold is counted again on the cards that it has now."""
        if self._nodes.get(node.name) == node:
            return
        self._nodes[node.name] = node
        self._rebuild(node.name)

    def remove_node(self, name: str) -> None:
        """Record that the node object is gone; its pods stay, and the cards that they hold are orphans."""
        if self._nodes.pop(name, None) is not None:
            self._rebuild(name)

    # -- recording ------------------------------------------------------------------------------------------------

    def _put(self, record: PodRecord, state: PodState) -> None:
        known = self._pods.get(record.uid)
        self._states[record.uid] = state
        if known == record:
            return
        if known is not None:
            self._count(known, -1)
        self._pods[record.uid] = record
        if record.problem is not None:
            self._problems[record.uid] = record.problem
        elif known is not None:
            self._problems.pop(record.uid, None)
        node = str(record.node)
        if node not in self._rows:
            self._new_row(node)
        self._pods_on.setdefault(node, {})[record.uid] = record
        self._count(record, 1)
        if known is not None and known.node != record.node:
            self._leave(known)
        self._generation += 1

    def _count_cardless(self, node: str, cpu_milli: int) -> None:
        total = self._cardless_cpu.get(node, 0) + cpu_milli
        if total:
            self._cardless_cpu[node] = total
        else:
            del self._cardless_cpu[node]
        row = self._rows.get(node)
        if row is not None:
            self._table.add_cpu(row, cpu_milli)
            self._generation += 1

    def _next(self, uid: str, event: PodEvent) -> PodState | None:
        return TRANSITIONS[self._states.get(uid), event]

    def _drop(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        self._states.pop(uid, None)
        self._problems.pop(uid, None)
        if known is not None:
            self._count(known, -1)
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
            self._free_row(node)

    def _count(self, record: PodRecord, sign: int) -> None:
        """Add a record's numbers to its node and namespace, or take them away."""
        (self._used.add if sign > 0 else self._used.take)(record.namespace, record.scope, self._charge(record))
        node, table = str(record.node), self._table
        row, positions = self._rows[node], self._positions[node]
        if record.several:
            for vendor, peak, _ in record.several:
                table.add_count(row, self._vendors[vendor], sign * peak.count)
        else:
            table.add_count(row, self._vendors[record.vendor], sign * record.total_peak.count)
        table.add_cpu(row, sign * record.cpu_milli)
        if self.has_mig:
            self._count_slices(node, row, record, sign)
        for use in record.held:
            position = positions.get(use[0])
            if position is None:
                self._count_orphan(node, use[0], sign)
            else:
                table.add(position, row, use, sign)
        if record.blocks is not None:
            self._block(node, row, record.blocks, sign)

    def _count_slices(self, node: str, row: int, record: PodRecord, sign: int) -> None:
        """Count the instances of a pod on cards in MIG mode.

        The plugin made all of them when the pod was admitted, so they stay until it ends, those of inits too.
        """
        for use in record.peak:
            position = self._positions[node].get(use.uuid)
            layout = () if position is None else self._nodes[node].devices[position].layout
            if position is not None and layout:
                bits = self._slices.count(node, layout, use.uuid, record, sign)
                self._table.requested.slices[position, row] = bits
                self._table.refresh(position, row)

    def _count_orphan(self, node: str, uuid: str, sign: int) -> None:
        """Count the holders of a card without room to keep count of; `report` has its numbers from the records.

        An annotation may name any number of cards that do not exist; they must not make the arrays grow.
        """
        orphans = self._orphans.setdefault(node, {})
        orphans[uuid] = orphans.get(uuid, 0) + sign
        if not orphans[uuid]:
            del orphans[uuid]
        if not orphans:
            del self._orphans[node]

    def _block(self, node: str, row: int, uuids: tuple[str, ...], sign: int) -> None:
        positions = self._positions[node]
        named = [positions[uuid] for uuid in uuids if uuid in positions]
        for position in named:
            self._table.requested.blocks[position, row] += sign
            self._table.refresh(position, row)
        if not named:
            self._table.requested.node_blocks[row] += sign

    # -- rows -----------------------------------------------------------------------------------------------------

    def _rebuild(self, name: str) -> None:
        """Lay a node's row anew from its object and count its pods again."""
        self._generation += 1
        self._node_generation += 1
        node, pods = self._nodes.get(name), self._pods_on.get(name, {})
        if node is None and not pods:
            self._free_row(name)
            return
        if name not in self._rows:
            self._new_row(name)
        row = self._rows[name]
        for record in pods.values():
            self._used.take(record.namespace, record.scope, self._charge(record))
        self._table.clear_row(row)
        self._table.add_cpu(row, self._cardless_cpu.get(name, 0))
        self._positions[name] = {}
        self._slices.clear(name, pods)
        self._orphans.pop(name, None)
        if node is not None:
            self._lay_out(node, row)
        for uid in sorted(pods):
            self._count(pods[uid], 1)

    def _charge(self, record: PodRecord) -> Iterable[tuple[str, int]]:
        """Return what a namespace is charged for a record now."""
        if not record.several:
            return zip(charge_names(self._vendors[record.vendor]), record.held_total, strict=True)
        return [
            pair
            for vendor, total in record.held_totals
            for pair in zip(charge_names(self._vendors[vendor]), total, strict=True)
        ]

    def _lay_out(self, node: Node, row: int) -> None:
        self._table.reserve(len(node.devices), row + 1)
        arrays = self._table.own_nodes()
        arrays.registered[row] = True
        arrays.card_count[row] = len(node.devices)
        arrays.count_allocatable[row] = -1 if node.count_allocatable is None else node.count_allocatable
        arrays.cpu_milli[row] = -1 if node.cpu_milli is None else node.cpu_milli
        arrays.further_allocatable[:, row] = -1
        for vendor, allocatable in node.further_allocatable:
            arrays.further_allocatable[self._vendors[vendor] - 1, row] = -1 if allocatable is None else allocatable
        arrays.single_numa[row] = node.single_numa
        arrays.topology[row] = self._topology(node)
        for position, device in enumerate(node.devices):
            cell = position, row
            self._positions[node.name][device.uuid] = position
            arrays.slots[cell], arrays.memory[cell], arrays.cores[cell] = device.slots, device.memory, device.cores
            arrays.present[cell], arrays.healthy[cell] = True, device.healthy and not device.gone
            arrays.cordoned[cell] = device.uuid in node.cordoned
            arrays.duplicated[cell] = device.uuid in node.duplicated
            arrays.numa[cell], arrays.index[cell] = device.numa, device.index
            arrays.type_id[cell], arrays.mode_id[cell] = self._intern(device.type), self._intern(device.mode)
            arrays.uuid_id[cell] = self._intern(device.uuid)
            arrays.vendor[cell] = self._vendors[device.vendor]
            arrays.layout[cell] = self._layouts.setdefault(device.layout, len(self._layouts))
            arrays.reserved_memory[cell] = device.reserved_memory
            self._table.refresh(position, row)

    def _topology(self, node: Node) -> int:
        """Return the number of the links between a node's cards."""
        if not node.links:
            return 0
        positions = {device.uuid: position for position, device in enumerate(node.devices)}
        matrix = [[0] * len(node.devices) for _ in node.devices]
        for a, b, score in node.links:
            if a not in positions or b not in positions:
                continue
            matrix[positions[a]][positions[b]] = matrix[positions[b]][positions[a]] = score
        topology = tuple(map(tuple, matrix))
        number = self._topologies.setdefault(topology, len(self._topology_list))
        if number == len(self._topology_list):
            self._topology_list.append(topology)
        return number

    def _intern(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids))

    def _new_row(self, name: str) -> None:
        row = self._free_rows.pop() if self._free_rows else len(self._rows)
        self._table.reserve(1, row + 1)
        self._own_rows()[name] = row
        self._positions[name] = {}
        self._table.add_cpu(row, self._cardless_cpu.get(name, 0))

    def _free_row(self, name: str) -> None:
        row = self._own_rows().pop(name)
        self._table.clear_row(row)
        self._positions.pop(name)
        self._free_rows.append(row)

    def _own_rows(self) -> dict[str, int]:
        """Return the row numbers for writing; a snapshot keeps the ones that it was given."""
        self._generation += 1
        self._node_generation += 1
        if self._rows_shared:
            self._rows = dict(self._rows)
            self._rows_shared = False
        return self._rows
