"""The objects of every resource, one version counter, and the history that can still be read.

It exists in place of etcd. It must not know HTTP, validation or what a write means. Invariant: every write takes the
next version of one counter that all resources share, and is one event; rows of a table are in order of key, as etcd
lists them.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable

from tests.apiserver.history import Event, EventType, History
from tests.apiserver.resources import RESOURCES, Json, Resource
from tests.apiserver.stored import Stored, restamped

_SNAPSHOTS = 8
"""How many older states of a table are kept, so that a list's pages need not rebuild them."""


_FIRST_VERSION = 100
"""The first version. Version 1 is long gone, as in every cluster that has run for a second."""


class Table:
    """The objects of one resource."""

    def __init__(self, resource: Resource, history: History) -> None:
        self.resource = resource
        self.history = history
        self.rows: list[Stored] = []
        self._keys: list[str] = []
        self._snapshots: OrderedDict[int, list[Stored]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.rows)

    def get(self, key: str) -> Stored | None:
        """Return the present object of that key."""
        position = bisect_left(self._keys, key)
        return self.rows[position] if position < len(self._keys) and self._keys[position] == key else None

    def place(self, row: Stored) -> None:
        """Store a row in place of the one with its key."""
        position = bisect_left(self._keys, row.key)
        if position < len(self._keys) and self._keys[position] == row.key:
            self.rows[position] = row
        else:
            self._keys.insert(position, row.key)
            self.rows.insert(position, row)

    def take(self, key: str) -> None:
        """Remove the row of that key, which must exist."""
        position = bisect_left(self._keys, key)
        del self._keys[position]
        del self.rows[position]

    def fill(self, rows: Iterable[Stored]) -> None:
        """Store many rows at once; later ones win."""
        merged = dict(zip(self._keys, self.rows, strict=True)) | {row.key: row for row in rows}
        self._keys = sorted(merged)
        self.rows = [merged[key] for key in self._keys]

    def at(self, version: int, current: int) -> list[Stored]:
        """Return the rows as of a version that the history still reaches. The caller must not change the list."""
        if version >= current or not self.history.after(version):
            rows = self._snapshots.get(version)
            return self._remember(version, list(self.rows)) if rows is None else rows
        rows = self._snapshots.get(version)
        return self._remember(version, self._rebuild(version)) if rows is None else rows

    def _remember(self, version: int, rows: list[Stored]) -> list[Stored]:
        self._snapshots[version] = rows
        while len(self._snapshots) > _SNAPSHOTS:
            self._snapshots.popitem(last=False)
        return rows

    def _rebuild(self, version: int) -> list[Stored]:
        undone: dict[str, Stored | None] = {}
        for event in reversed(self.history.after(version)):
            undone[event.row.key] = event.before
        rows = [row for row in self.rows if row.key not in undone]
        rows.extend(row for row in undone.values() if row is not None)
        return sorted(rows, key=lambda row: row.key)


class Store:
    """All tables."""

    def __init__(self, history_limit: int, first_version: int = _FIRST_VERSION) -> None:
        self.version = first_version
        self.tables = {resource: Table(resource, History(history_limit, first_version)) for resource in RESOURCES}
        self._listeners: dict[Resource, list[Callable[[], None]]] = {resource: [] for resource in RESOURCES}

    def get(self, resource: Resource, key: str) -> Stored | None:
        """Return the present object of that key."""
        return self.tables[resource].get(key)

    def put(self, resource: Resource, obj: Json, before: Stored | None) -> Stored:
        """Write an object; `before` is what it replaces."""
        self.version += 1
        row = Stored(resource, obj, self.version)
        self.tables[resource].place(row)
        self._publish(resource, "ADDED" if before is None else "MODIFIED", row, before)
        return row

    def remove(self, resource: Resource, before: Stored) -> Stored:
        """Remove an object; returns its last state, with the version of the removal."""
        self.version += 1
        row = restamped(resource, before, self.version)
        self.tables[resource].take(before.key)
        self._publish(resource, "DELETED", row, before)
        return row

    def fill(self, resource: Resource, objects: Iterable[Json]) -> int:
        """Write many objects without events; returns how many. The history starts anew after them."""
        rows = []
        for obj in objects:
            self.version += 1
            rows.append(Stored(resource, obj, self.version))
        table = self.tables[resource]
        table.fill(rows)
        table.history.reset(self.version)
        self._wake(resource)
        return len(rows)

    def compact(self, version: int | None = None) -> None:
        """Forget the history up to a version; by default all of it."""
        for resource, table in self.tables.items():
            table.history.compact(self.version if version is None else version)
            self._wake(resource)

    def listen(self, resource: Resource, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` after each write; returns a function that ends this."""
        listeners = self._listeners[resource]
        listeners.append(wake)
        return lambda: listeners.remove(wake)

    def _publish(self, resource: Resource, kind: EventType, row: Stored, before: Stored | None) -> None:
        self.tables[resource].history.append(Event(self.version, kind, row, before))
        self._wake(resource)

    def _wake(self, resource: Resource) -> None:
        for wake in self._listeners[resource]:
            wake()


def scope(rows: list[Stored], namespace: str, start: str = "") -> tuple[int, int]:
    """Return the slice of sorted rows that belong to a namespace ("" means all), from a key on."""
    first, last = 0, len(rows)
    if namespace:
        first = bisect_left(rows, f"{namespace}/", key=_key)
        last = bisect_left(rows, f"{namespace}0", key=_key)
    if start:
        first = max(first, bisect_left(rows, start, key=_key))
    return first, max(first, last)


def _key(row: Stored) -> str:
    return row.key
