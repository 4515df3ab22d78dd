"""Where every node and card lies in the arrays.

Why it exists: arrays use rows and positions, all other code uses names and UUIDs. Models, modes, links and MIG layouts
are numbers in the arrays, too. It must not know pods. Invariants: a node with cards or pods has one row; a row that is
given back is empty; numbers for texts are only added, so a snapshot may share their table.
"""

from collections.abc import Mapping, Sequence

from accounting.mig_profiles import MigLayout
from accounting.node import Device, Node
from accounting.state.cells import DeviceTable
from accounting.state.snapshot import Snapshot, Topology


class _Numbers:
    """Texts and their numbers in the arrays. Numbers are only added, so snapshots and other tables may share them."""

    def __init__(self) -> None:
        self.layouts: dict[MigLayout, int] = {(): 0}
        self.ids: dict[str, int] = {"": 0}
        """UUIDs, models and modes."""
        self.topologies: dict[Topology, int] = {(): 0}
        """Links between cards."""
        self.topology_list: list[Topology] = [()]
        """The same by number."""

    def id_of(self, text: str) -> int:
        """Return the number of a text."""
        return self.ids.setdefault(text, len(self.ids))

    def topology_of(self, node: Node) -> int:
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
        number = self.topologies.setdefault(topology, len(self.topology_list))
        if number == len(self.topology_list):
            self.topology_list.append(topology)
        return number


class NodeRows:
    """The device table, and the names of its rows and cells."""

    def __init__(self, vendors: Sequence[str]) -> None:
        """`vendors`: keys; their order numbers them."""
        self.vendors = {key: number for number, key in enumerate(vendors)}
        self.table = DeviceTable(len(vendors))
        self.generation = 0
        """Grows with every change of a node."""
        self._rows: dict[str, int] = {}
        self._rows_shared = False
        self._free: list[int] = []
        self._places: dict[str, tuple[int, dict[str, int]]] = {}  # node name -> row, card UUID -> device position
        self._numbers = _Numbers()

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __getitem__(self, name: str) -> int:
        return self._rows[name]

    def get(self, name: str) -> int | None:
        """Return a node's row, None if it has none."""
        return self._rows.get(name)

    def place(self, name: str) -> tuple[int, Mapping[str, int]]:
        """Return the row of a node that has one, and its cards' positions by UUID."""
        return self._places[name]

    def names(self) -> list[str]:
        """Return the nodes that have a row, sorted."""
        return sorted(self._rows)

    def positions(self, name: str) -> Mapping[str, int]:
        """Return the device position of every card that a node registers, by UUID."""
        place = self._places.get(name)
        return {} if place is None else place[1]

    def device_at(self, node: Node, uuid: str) -> Device | None:
        """Return the card that a node registers under a UUID; None if it registers none."""
        position = self.positions(node.name).get(uuid)
        return None if position is None else node.devices[position]

    @property
    def has_mig(self) -> bool:
        """Whether any card was ever in MIG mode. If not, none is now."""
        return len(self._numbers.layouts) > 1

    def beside(self) -> "NodeRows":
        """Return an empty table that has the same numbers."""
        other = NodeRows(tuple(self.vendors))
        other._numbers = self._numbers
        return other

    def snapshot(self, generation: int, earlier: Snapshot | None) -> Snapshot:
        """Return the arrays as they are now. `earlier`: the last snapshot, whose unchanged parts are reused."""
        self._rows_shared = True
        arrays = self.table.share_nodes(), self.table.requested.copy()
        snapshot = Snapshot(generation, self.generation, self._rows, self._numbers.ids, arrays, earlier)
        snapshot.vendors, snapshot.layouts = self.vendors, tuple(self._numbers.layouts)
        snapshot.topologies = self._numbers.topology_list
        snapshot.stamps = self.table.stamps.copy()
        return snapshot

    # -- changing -------------------------------------------------------------------------------------------------

    def take(self, name: str) -> int:
        """Give a node an empty row."""
        row = self._free.pop() if self._free else len(self._rows)
        self.table.reserve(1, row + 1)
        self._own_rows()[name] = row
        self._places[name] = row, {}
        return row

    def give_back(self, name: str) -> None:
        """Take a node's row away."""
        row = self._own_rows().pop(name)
        self.table.clear_row(row)
        del self._places[name]
        self._free.append(row)

    def clear(self, name: str) -> int:
        """Empty a node's row; a node without one gets one."""
        row = self._rows.get(name)
        if row is None:
            return self.take(name)
        self.generation += 1
        self.table.clear_row(row)
        self._places[name] = row, {}
        return row

    def _own_rows(self) -> dict[str, int]:
        """Return the row numbers for writing. A snapshot keeps its own."""
        self.generation += 1
        if self._rows_shared:
            self._rows = dict(self._rows)
            self._rows_shared = False
        return self._rows

    def lay_out(self, node: Node) -> None:
        """Write a node and its cards into its row, which is empty."""
        (row, positions), numbers = self._places[node.name], self._numbers
        self.table.reserve(len(node.devices), row + 1)
        arrays = self.table.own_nodes()
        arrays.registered[row] = True
        arrays.card_count[row] = len(node.devices)
        arrays.count_allocatable[row] = -1 if node.count_allocatable is None else node.count_allocatable
        arrays.cpu_milli[row] = -1 if node.cpu_milli is None else node.cpu_milli
        arrays.further_allocatable[:, row] = -1
        for vendor, allocatable in node.further_allocatable:
            arrays.further_allocatable[self.vendors[vendor] - 1, row] = -1 if allocatable is None else allocatable
        arrays.single_numa[row] = node.single_numa
        arrays.topology[row] = numbers.topology_of(node)
        for position, device in enumerate(node.devices):
            cell = position, row
            positions[device.uuid] = position
            arrays.slots[cell], arrays.memory[cell], arrays.cores[cell] = device.slots, device.memory, device.cores
            arrays.present[cell], arrays.healthy[cell] = True, device.healthy and not device.gone
            arrays.cordoned[cell] = device.uuid in node.cordoned
            arrays.duplicated[cell] = device.uuid in node.duplicated
            arrays.open[cell] = arrays.healthy[cell] and device.uuid not in node.cordoned | node.duplicated
            arrays.numa[cell], arrays.index[cell] = device.numa, device.index
            arrays.type_id[cell], arrays.mode_id[cell] = numbers.id_of(device.type), numbers.id_of(device.mode)
            arrays.uuid_id[cell] = numbers.id_of(device.uuid)
            arrays.vendor[cell] = self.vendors[device.vendor]
            arrays.layout[cell] = numbers.layouts.setdefault(device.layout, len(numbers.layouts))
            arrays.reserved_memory[cell] = device.reserved_memory
            self.table.refresh(position, row)
