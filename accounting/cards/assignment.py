"""What the pod being fitted has put on the cards so far.

Why it exists: sidecars and apps are fitted on one shared copy of a node, and each init on its own fork of it. An
assignment is the difference between such a copy and the snapshot, so the snapshot is neither copied nor changed. It
must not choose cards. Invariant: an empty assignment costs nothing.
"""

from dataclasses import dataclass, field

import numpy as np

from accounting.holdings import EXCLUSIVE_CORES
from accounting.state import BoolArray, Int32Array, Int64Array, Rows, View


@dataclass(slots=True)
class Assignment:
    """Amounts per card, shaped like a view; the arrays are None until something is booked."""

    shape: tuple[int, int]
    slots: Int32Array | None = None
    memory: Int64Array | None = None
    cores: Int64Array | None = None
    exclusive: BoolArray | None = None
    load: Int64Array | None = None
    """The loads of all cards, as they were when `cells` was emptied last; see `greedy`."""
    cells: list[Rows] = field(default_factory=list)
    """Flat numbers of the cells that were booked since."""

    @classmethod
    def of(cls, view: View) -> "Assignment":
        """Return an empty assignment on a view."""
        return cls((view.devices, view.columns))

    def fork(self) -> "Assignment":
        """Return a copy that can be booked separately."""
        return Assignment(
            self.shape,
            None if self.slots is None else self.slots.copy(),
            None if self.memory is None else self.memory.copy(),
            None if self.cores is None else self.cores.copy(),
            None if self.exclusive is None else self.exclusive.copy(),
            None if self.load is None else self.load.copy(),
            list(self.cells),
        )

    def take(self, columns: Rows) -> "Assignment":
        """Return the assignment on these columns, without the numbers of booked cells."""
        return Assignment(
            (self.shape[0], len(columns)),
            None if self.slots is None else self.slots.take(columns, axis=1),
            None if self.memory is None else self.memory.take(columns, axis=1),
            None if self.cores is None else self.cores.take(columns, axis=1),
            None if self.exclusive is None else self.exclusive.take(columns, axis=1),
        )

    def column(self, column: int) -> "Assignment":
        """Return the assignment on one column, with the numbers of booked cells."""
        assignment = self.take(np.array([column]))
        columns = self.shape[1]
        assignment.load = None if self.load is None else self.load[:, [column]]
        assignment.cells = [cells[cells % columns == column] // columns for cells in self.cells]
        return assignment

    def book(self, cells: Rows, memory: Int64Array | int, cores: int) -> None:
        """Add one row (1 slot, memory in MiB, cores in percent) to each of these cells."""
        if self.slots is None or self.memory is None or self.cores is None:
            self.slots = np.zeros(self.shape, np.int32)
            self.memory = np.zeros(self.shape, np.int64)
            self.cores = np.zeros(self.shape, np.int64)
        # One container takes a card at most once, so no cell appears twice and plain indexed addition is correct.
        self.slots.reshape(-1)[cells] += 1
        self.memory.reshape(-1)[cells] += memory
        if cores:
            self.cores.reshape(-1)[cells] += cores
        if cores >= EXCLUSIVE_CORES:
            if self.exclusive is None:
                self.exclusive = np.zeros(self.shape, np.bool_)
            self.exclusive.reshape(-1)[cells] = True
        self.cells.append(cells)
