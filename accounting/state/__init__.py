"""What is known of nodes and pods now, as arrays and sums.

It records and never decides. `Cache` is written event by event; everything that judges reads a `Snapshot` of it.
`Cache` is imported from `accounting.state.cache`, so that an import contract sees who does.
"""

from accounting.state.dump import Dump, NodeState, name_order
from accounting.state.moments import Moment, Moments, untracked
from accounting.state.snapshot import Snapshot, Topology, View, weighted_load
from accounting.state.tables import FULL_LOAD, BoolArray, Int32Array, Int64Array, Rows
from accounting.state.usage import NamespaceSums, charge_names

__all__ = [
    "FULL_LOAD",
    "BoolArray",
    "Dump",
    "Int32Array",
    "Int64Array",
    "Moment",
    "Moments",
    "NamespaceSums",
    "NodeState",
    "Rows",
    "Snapshot",
    "Topology",
    "View",
    "charge_names",
    "name_order",
    "untracked",
    "weighted_load",
]
