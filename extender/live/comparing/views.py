"""One object in the cache and at the API server, in a form that can be compared and shown.

It must not do I/O. Invariants: an object that concerns no cards is None on both sides; a pod whose bind is being
decided counts on neither side.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import msgspec

from accounting.holdings import DeviceUse
from accounting.node import Node
from accounting.pod_record import State, record_pod
from accounting.pod_state import PodState
from accounting.quota import QuotaTable
from accounting.state import untracked
from extender.cluster import Cluster, Heard, concerns_cards
from extender.convert import convert_node, convert_pod, convert_quota, misnamed
from extender.kube.paths import NODES, PODS, RESOURCE_QUOTAS, api_path
from extender.wire import core_v1
from extender.wire.shallow import read_json

Json = dict[str, Any]


class Seen(NamedTuple):
    """One object as the API server has it. `value`: None if it concerns no cards."""

    identity: str
    value: Any


class View(Protocol):
    """How to compare the objects of one resource."""

    path: str
    query: Mapping[str, str]

    def known(self) -> Collection[str]:
        """Return the keys that the cache knows, and forget what was read before."""

    def read(self, raw: msgspec.Raw | bytes) -> Seen | None:
        """Read an object of a list; None if it does not decode, or if `rest` returns it as part of a whole."""

    def rest(self) -> Iterable[Seen]:
        """Return, after a list, the objects that only the whole list determines."""

    def path_of(self, identity: str, value: Any) -> str | None:  # noqa: ANN401 - a value of this view
        """Return the path at which the object can be read alone; None if its name is no longer known."""

    def query_of(self, identity: str, value: Any) -> Mapping[str, str] | None:  # noqa: ANN401 - a value of this view
        """Return the query that goes with `path_of`."""

    def read_again(self, identity: str, body: bytes) -> Any:  # noqa: ANN401 - a value of this view
        """Return the object in the answer to a read of `path_of`."""

    def cached(self, identity: str) -> Any:  # noqa: ANN401 - a value of this view
        """Return the object as the cache has it."""

    def agrees(self, identity: str, value: Any) -> bool:  # noqa: ANN401 - a value of this view
        """Whether the cache says of an object what it should, when the API server says `value`."""

    def is_open(self, identity: str) -> bool:
        """Whether it cannot be decided yet which side is right."""

    def shown(self, identity: str, cached: Any, value: Any) -> Json:  # noqa: ANN401 - values of this view
        """Return a difference as JSON."""


class _PodValue(NamedTuple):
    key: str
    node: str | None
    held: tuple[DeviceUse, ...]
    blocks: tuple[str, ...] | None
    state: State | None = None


class PodView:
    """Pods by UID."""

    path = api_path(PODS)

    def __init__(self, cluster: Cluster, query: Mapping[str, str]) -> None:
        self.query = query
        self._cluster = cluster

    def known(self) -> Collection[str]:
        """Return the UID of every known pod."""
        return untracked(self._cluster.registry.uids)

    def read(self, raw: msgspec.Raw | bytes) -> Seen | None:
        """A pod. One that has ended or concerns no cards has no value."""
        try:
            wire = read_json(raw, core_v1.Pod)
        except msgspec.DecodeError:
            return None
        if misnamed(wire.metadata):
            return None
        pod = convert_pod(wire, self._cluster.settings)
        if pod.terminal or not concerns_cards(pod):
            return Seen(pod.uid, None)
        if pod.node is None:
            return Seen(pod.uid, _PodValue(pod.key, None, (), None))
        record = record_pod(pod)
        return Seen(pod.uid, _PodValue(pod.key, pod.node, record.held, record.blocks, record.state))

    def rest(self) -> Iterable[Seen]:
        """Nothing."""
        return ()

    def path_of(self, identity: str, value: _PodValue | None) -> str | None:
        """By namespace and name."""
        known = value or self.cached(identity)
        if known is None:
            return None
        namespace, _, name = known.key.partition("/")
        return api_path(PODS, name, namespace=namespace)

    def query_of(self, identity: str, value: _PodValue | None) -> None:
        """Nothing."""

    def read_again(self, identity: str, body: bytes) -> _PodValue | None:
        """The pod, unless another one has its name now."""
        seen = self.read(body)
        return seen.value if seen is not None and seen.identity == identity else None

    def cached(self, identity: str) -> _PodValue | None:
        """What the cache holds for a pod. Its rows, which are long to read, are not needed for that."""
        pod = self._cluster.pod_without_rows(identity)
        if pod is None or pod.terminal or not concerns_cards(pod):
            return None
        record = self._cluster.cache.pods.get(identity)
        if record is None:
            return _PodValue(pod.key, pod.node, (), None)
        return _PodValue(pod.key, record.node, record.held, record.blocks, record.state)

    def agrees(self, identity: str, value: _PodValue | None) -> bool:
        """Whether both are equal, or the allocation was changed after the Binding, which is a problem by itself.

        Of such a pod the cache keeps on purpose what was read before, per card the larger of both. A pod of which only
        a question told holds nothing, and nobody tells of its deletion: that it is gone is no difference.
        """
        cached, record = self.cached(identity), self._cluster.cache.pods.get(identity)
        if cached == value or (value is None and self._is_only_asked_about(identity)):
            return True
        if cached is None or value is None or record is None or record.problem is None or not record.readable:
            return False
        same = (cached.key, cached.node, cached.state) == (value.key, value.node, value.state)
        return same and _covers(cached.held, value.held)

    def _is_only_asked_about(self, identity: str) -> bool:
        return identity not in self._cluster.cache.pods and self._cluster.registry.is_heard_of(identity, Heard.QUESTION)

    def is_open(self, identity: str) -> bool:
        """Return whether its bind is being decided."""
        return self._cluster.cache.state(identity) is PodState.ASSUMED

    def shown(self, identity: str, cached: _PodValue | None, value: _PodValue | None) -> Json:
        """By name; the UID tells apart what had that name one after another."""
        known = value or cached
        name = identity if known is None else known.key
        return {"object": f"pod {name}", "cache": _pod_json(identity, cached), "api": _pod_json(identity, value)}


def _covers(larger: Iterable[DeviceUse], smaller: Iterable[DeviceUse]) -> bool:
    """Whether one holding is at least as large as another in every dimension of every card."""
    uses = {use.uuid: use for use in larger}
    return all(
        use.uuid in uses and all(a >= b for a, b in zip(uses[use.uuid][1:], use[1:], strict=True)) for use in smaller
    )


def _pod_json(uid: str, value: _PodValue | None) -> Json | None:
    if value is None:
        return None
    held = {use.uuid: {"slots": use.slots, "memory": use.memory, "cores": use.cores} for use in value.held}
    return {"uid": uid, "node": value.node, "held": held, "blocks": value.blocks}


class NodeView:
    """Nodes by name."""

    path = api_path(NODES)
    query: Mapping[str, str] = {}

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def known(self) -> Collection[str]:
        """Every node object."""
        return untracked(self._cluster.cache.nodes)

    def read(self, raw: msgspec.Raw | bytes) -> Seen | None:
        """A node."""
        try:
            wire = read_json(raw, core_v1.Node)
        except msgspec.DecodeError:
            return None
        if misnamed(wire.metadata):
            return None
        node = convert_node(wire, self._cluster.settings)
        return Seen(node.name, self._cluster.plugins.as_counted(node))

    def rest(self) -> Iterable[Seen]:
        """Nothing."""
        return ()

    def path_of(self, identity: str, value: Node | None) -> str | None:  # noqa: ARG002 - the protocol's argument
        """By name."""
        return api_path(NODES, identity)

    def query_of(self, identity: str, value: Node | None) -> None:
        """Nothing."""

    def read_again(self, identity: str, body: bytes) -> Node | None:  # noqa: ARG002 - the protocol's argument
        """The node."""
        seen = self.read(body)
        return None if seen is None else seen.value

    def cached(self, identity: str) -> Node | None:
        """The node as the cache has it."""
        return self._cluster.cache.nodes.get(identity)

    def agrees(self, identity: str, value: Node | None) -> bool:
        """Whether both are equal."""
        return self.cached(identity) == value

    def is_open(self, identity: str) -> bool:  # noqa: ARG002 - the protocol's argument
        """Never."""
        return False

    def shown(self, identity: str, cached: Node | None, value: Node | None) -> Json:
        """By name."""
        return {"object": f"node {identity}", "cache": _node_json(cached), "api": _node_json(value)}


def _node_json(node: Node | None) -> Json | None:
    if node is None:
        return None
    devices = {
        device.uuid: {
            "slots": device.slots,
            "memory": device.memory,
            "cores": device.cores,
            "healthy": device.healthy and not device.gone,
        }
        for device in node.devices
    }
    return {"devices": devices, "cordoned": sorted(node.cordoned), "count": node.count_allocatable}


class QuotaView:
    """The limits of each namespace, which several objects may set."""

    path = api_path(RESOURCE_QUOTAS)
    query: Mapping[str, str] = {}

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._table = self._empty()

    def known(self) -> set[str]:
        """Every namespace with a limit."""
        self._table = self._empty()
        return set(self._cluster.quotas.namespaces())

    def read(self, raw: msgspec.Raw | bytes) -> Seen | None:
        """Collect one object; `rest` returns the result."""
        with suppress(msgspec.DecodeError):
            wire = read_json(raw, core_v1.ResourceQuota)
            if not misnamed(wire.metadata):
                self._table.put(convert_quota(wire, self._cluster.settings))
        return None

    def rest(self) -> Iterable[Seen]:
        """The limits of each namespace."""
        return [Seen(namespace, self._table.limits(namespace)) for namespace in self._table.namespaces()]

    def path_of(self, identity: str, value: Json | None) -> str | None:  # noqa: ARG002 - the protocol's argument
        """All quotas of the namespace."""
        return api_path(RESOURCE_QUOTAS, namespace=identity)

    def query_of(self, identity: str, value: Json | None) -> None:
        """Nothing."""

    def read_again(self, identity: str, body: bytes) -> Json | None:
        """The namespace's limits."""
        self._table = self._empty()
        for raw in read_json(body, _Items).items or ():
            self.read(raw)
        return self._table.limits(identity) or None

    def cached(self, identity: str) -> Json | None:
        """The limits as the cache has them."""
        return self._cluster.quotas.limits(identity) or None

    def agrees(self, identity: str, value: Json | None) -> bool:
        """Whether both are equal."""
        return self.cached(identity) == value

    def is_open(self, identity: str) -> bool:  # noqa: ARG002 - the protocol's argument
        """Never."""
        return False

    def shown(self, identity: str, cached: Json | None, value: Json | None) -> Json:
        """By namespace."""
        return {"object": f"quotas of namespace {identity}", "cache": cached, "api": value}

    def _empty(self) -> QuotaTable:
        return QuotaTable(*self._cluster.settings.vendors)


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
