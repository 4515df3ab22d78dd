"""Whole devices under raw resource names: how many each node and namespace uses.

Why it exists: a VM's device and the request of its launcher pod are the same device, so they are neither added nor does
one replace the other: per VMI and node the larger of the two counts. All pods that a VMI lists share the credit of its
holds, so a second listed pod gets no further credit. It must not know arrays, VMIs' specs or statuses. Invariants: the
sums are over the recorded pods and holds, in whatever order they came; a pod uses the order-aware request of its spec
for all its life, as in kube-scheduler.

    used(node, key)        = sum over VMIs of max(held there, requested there by its launchers) + all other pods there
    used(namespace, key)   = sum over VMIs of max(held in any state, requested by its launchers) + all other pods

While a migration runs, its target pod charges the namespace only what it requests beyond the source pod.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from accounting.holders.hold import Hold
from accounting.holders.virtual_machine import VmiKey

Units = tuple[tuple[str, int], ...]
"""(raw key, units), sorted by key."""


class RawPod(NamedTuple):
    """A pod on a node that has not ended: its requests of raw keys, and the VMI whose launcher it is."""

    uid: str
    namespace: str
    node: str
    units: Units
    vmi: VmiKey | None = None
    migrates_from: Units = ()
    """The source pod's requests, if this pod is the target of a running migration."""


class _Group:
    """What one VMI holds and its launchers request of one raw key, on one node or in one namespace."""

    __slots__ = ("held", "requested")

    def __init__(self) -> None:
        self.held = self.requested = 0

    @property
    def used(self) -> int:
        return max(self.held, self.requested)


_Place = tuple[str, str]  # keyed by node or namespace, and raw key


class _Sums:
    """Use by place: groups of VMIs, and all other pods."""

    def __init__(self) -> None:
        self.used: dict[_Place, int] = {}
        self.by_key: dict[str, dict[str, int]] = {}
        """The same by raw key, then node or namespace: who looks at all nodes makes no pairs."""
        self._groups: dict[tuple[VmiKey, _Place], _Group] = {}

    def group(self, vmi: VmiKey, place: _Place) -> _Group:
        """Return a VMI's group at a place; an empty one if it has none."""
        return self._groups.get((vmi, place)) or _Group()

    def add(self, place: _Place, vmi: VmiKey | None, held: int, requested: int) -> None:
        """Add to a place's sums; negative numbers subtract."""
        if vmi is None:
            self._count(place, requested)
            return
        known = vmi, place
        group = self._groups.get(known)
        if group is None:
            group = self._groups[known] = _Group()
        before = group.used
        group.held += held
        group.requested += requested
        self._count(place, group.used - before)
        if not (group.held or group.requested):
            del self._groups[known]

    def without(self, place: _Place, pod: RawPod | None, requested: int) -> int:
        """Return the use at a place without what a pod requests there."""
        used = self.used.get(place, 0)
        if pod is None or not requested:
            return used
        if pod.vmi is None:
            return used - requested
        group = self.group(pod.vmi, place)
        return used - group.used + max(group.held, group.requested - requested)

    def _count(self, place: _Place, change: int) -> None:
        if not change:
            return
        amount = self.used.get(place, 0) + change
        name, key = place
        if amount:
            self.used[place] = amount
            self.by_key.setdefault(key, {})[name] = amount
        else:
            del self.used[place]
            del self.by_key[key][name]


class RawUnits:
    """The use of raw keys. Every change is keyed by pod UID or VMI, and repeating it changes nothing."""

    def __init__(self) -> None:
        self._pods: dict[str, RawPod] = {}
        self._holds: dict[VmiKey, tuple[Hold, ...]] = {}
        self._nodes = _Sums()
        self._namespaces = _Sums()

    def used_on(self, node: str, key: str) -> int:
        """Return the units of a key that are used on a node."""
        return self._nodes.used.get((node, key), 0)

    def used_in(self, namespace: str, key: str) -> int:
        """Return the units of a key that are charged to a namespace's budget."""
        return self._namespaces.used.get((namespace, key), 0)

    def on_nodes(self) -> Mapping[tuple[str, str], int]:
        """Return the units that are used, by (node, key)."""
        return self._nodes.used

    def keys_in_use(self) -> list[str]:
        """Return the keys of which some node has units in use, sorted."""
        return sorted(self._nodes.by_key)

    def of_key(self, key: str) -> Mapping[str, int]:
        """Return the units of a key that are used, by node."""
        return self._nodes.by_key.get(key, {})

    def new_units(self, pod: RawPod, key: str) -> int:
        """Return the units that a pod would add on its node: less than it requests if its VMI holds some there.

        The pod's own earlier use does not count.
        """
        units = _of(pod.units, key)
        if pod.vmi is None:
            return units
        return _added(self._nodes.group(pod.vmi, (pod.node, key)), units, self._own(pod, (pod.node, key)))

    def new_charge(self, pod: RawPod, key: str) -> int:
        """Return the units that a pod would add to its namespace's budget."""
        units = _of(_charged(pod), key)
        if pod.vmi is None:
            return units
        known = self._pods.get(pod.uid)
        own = 0 if known is None or known.vmi != pod.vmi else _of(_charged(known), key)
        return _added(self._namespaces.group(pod.vmi, (pod.namespace, key)), units, own)

    def adds_held(self, vmi: VmiKey, node: str, key: str, units: int) -> int:
        """Return by how much a node's use grows if so many units more were held there for a VMI; below 0: falls."""
        group = self._nodes.group(vmi, (node, key))
        return max(group.held + units, group.requested) - group.used

    def used_without(self, pod: RawPod, key: str) -> int:
        """Return the units of a key that are used on a pod's node, what the pod itself uses there left out."""
        return self._nodes.without((pod.node, key), self._pods.get(pod.uid), self._own_on(pod, pod.node, key))

    def charged_without(self, pod: RawPod, key: str) -> int:
        """Return the units of a key that a pod's namespace is charged for, what it is charged for the pod left out."""
        known = self._pods.get(pod.uid)
        own = 0 if known is None or known.namespace != pod.namespace else _of(_charged(known), key)
        return self._namespaces.without((pod.namespace, key), known, own)

    def put_pod(self, pod: RawPod) -> None:
        """Record a pod that is on a node."""
        known = self._pods.get(pod.uid)
        if known == pod:
            return
        if known is not None:
            self._count_pod(known, -1)
        self._pods[pod.uid] = pod
        self._count_pod(pod, 1)

    def remove_pod(self, uid: str) -> None:
        """Record that a pod is terminal or gone."""
        known = self._pods.pop(uid, None)
        if known is not None:
            self._count_pod(known, -1)

    def put_holds(self, vmi: VmiKey, holds: Iterable[Hold]) -> None:
        """Replace the holds of a VMI."""
        for hold in self._holds.pop(vmi, ()):
            self._count_hold(hold, -1)
        now = tuple(holds)
        if now:
            self._holds[vmi] = now
        for hold in now:
            self._count_hold(hold, 1)

    def _own_on(self, pod: RawPod, node: str, key: str) -> int:
        known = self._pods.get(pod.uid)
        return 0 if known is None or known.node != node else _of(known.units, key)

    def _own(self, pod: RawPod, place: _Place) -> int:
        known = self._pods.get(pod.uid)
        if known is None or (known.vmi, known.node) != (pod.vmi, place[0]):
            return 0
        return _of(known.units, place[1])

    def _count_pod(self, pod: RawPod, sign: int) -> None:
        for key, units in pod.units:
            self._nodes.add((pod.node, key), pod.vmi, 0, sign * units)
        for key, units in _charged(pod):
            self._namespaces.add((pod.namespace, key), pod.vmi, 0, sign * units)

    def _count_hold(self, hold: Hold, sign: int) -> None:
        self._namespaces.add((hold.vmi.namespace, hold.key), hold.vmi, sign * hold.units, 0)
        if hold.node is not None:
            self._nodes.add((hold.node, hold.key), hold.vmi, sign * hold.units, 0)


def _charged(pod: RawPod) -> Units:
    """Return a pod's charge to its namespace; for a migration's target, its requests beyond the source's."""
    if not pod.migrates_from:
        return pod.units
    source = dict(pod.migrates_from)
    return tuple((key, max(0, units - source.get(key, 0))) for key, units in pod.units)


def _of(units: Units, key: str) -> int:
    """Return the units of a key."""
    for name, number in units:
        if name == key:
            return number
    return 0


def _added(group: _Group, units: int, own: int) -> int:
    """Return by how much a launcher's units raise a group's use, without its own earlier units."""
    others = group.requested - own
    return max(group.held, others + units) - max(group.held, others)
