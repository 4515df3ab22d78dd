"""The table of those who may have to go, as the cluster is now.

Why it exists: making it from 100,000 pods takes a second, so it is kept, and only nodes that have changed since the
last choice are looked at. It must not choose. Invariants: after `refresh` a row's entries are those of its node at that
moment; nothing is kept before somebody asks.
"""

from collections.abc import Sequence

import numpy as np

from accounting.answers.preemption import Offer, Preemptor, VictimTable
from accounting.state import Snapshot
from extender.cluster import Cluster
from extender.cluster.events import Kept
from extender.kube.pace import Pace


class TableKeeper:
    """The table of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.table = VictimTable(cluster.settings.vendors[0].key)
        self._cluster = cluster
        self._stamps = np.zeros(0, np.int64)
        self._selections = -1
        self._dirty: set[str] = set()  # nodes whose pods changed in what the stamp does not stand for
        self._names: dict[int, str] = {}
        self._rows: object = None
        cluster.events.kept.subscribe(self._kept)

    async def refresh(self) -> Snapshot:
        """Bring the table up to date, giving the loop to others again and again; returns the state then."""
        pace, budgets = Pace(), self._cluster.residents.budgets
        if self._selections != budgets.selections:
            self._selections = budgets.selections
            self.table.clear()
            self._stamps = np.zeros(0, np.int64)
        snapshot = self._cluster.cache.snapshot()
        changed = self._changed(snapshot)
        for row in changed:
            self._put(row)
            await pace.breathe()
        return self._cluster.cache.snapshot()

    def look(self, rows: Sequence[int], preemptor: Preemptor) -> tuple[Snapshot, list[Offer]]:
        """Return the state as it is now, and what is on those of the rows that are known."""
        cluster = self._cluster
        names = [self._names[row] for row in rows if row in self._names]
        occupied = [one for one in map(cluster.residents.occupied, names) if one is not None]
        offers = [Offer(one, (), cluster.nominations.before(preemptor, one.node)) for one in occupied]
        return cluster.cache.snapshot(), offers

    def _changed(self, snapshot: Snapshot) -> list[int]:
        if self._rows is not snapshot.rows:
            self._rows, self._names = snapshot.rows, {row: name for name, row in snapshot.rows.items()}
        known = np.full(snapshot.columns, -1, np.int64)
        common = min(len(self._stamps), snapshot.columns)
        known[:common] = self._stamps[:common]
        changed = known != snapshot.stamps
        changed[[snapshot.rows[name] for name in self._dirty if name in snapshot.rows]] = True
        self._dirty.clear()
        self._stamps = snapshot.stamps.copy()
        return [int(row) for row in np.flatnonzero(changed)]

    def _put(self, row: int) -> None:
        name = self._names.get(row)
        occupied = None if name is None else self._cluster.residents.occupied(name)
        if occupied is None or occupied.row != row:
            self.table.put(row, {}, ())
        else:
            self.table.put(row, occupied.positions, occupied.pods)

    def _kept(self, event: Kept) -> None:
        """A pod is being deleted now, or has become more important: no card changes by that."""
        before, pod = event.before, event.pod
        if pod.node is not None and (before is None or (before.deleting, before.info) != (pod.deleting, pod.info)):
            self._dirty.add(pod.node)
