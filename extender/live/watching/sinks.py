"""From watched objects to the cluster and the node facts.

It must not do I/O, nor know who listens to the cluster's events. Invariants: an object that does not decode changes
nothing else; of pods that neither ask for nor hold cards only the CPU on their node is kept; a change that may have
freed something is published with the node's name.
"""

import msgspec

from extender.cluster import Cluster, is_older
from extender.convert import convert_node, convert_quota
from extender.kube.reflector import Change, Taken
from extender.live.watching.facts import Facts, NodeFacts, node_facts
from extender.live.watching.informer import PodInformer
from extender.live.watching.naming import is_misnamed, name_of
from extender.logs import logger
from extender.wire import core_v1, watched
from extender.wire.shallow import read_with


class PodSink:
    """Pods by UID."""

    def __init__(self, cluster: Cluster, informer: PodInformer) -> None:
        self._registry = cluster.registry
        self._informer = informer
        self._events = cluster.events

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one pod."""
        if change is Change.DELETED:
            return self._deleted(raw)
        try:
            wire = watched.decode_pod(raw)
        except msgspec.DecodeError as error:
            return self._undecodable(raw, error)
        meta = wire.metadata
        if meta is None or not meta.uid:
            logger().error("pod without a UID")
            return Taken(None)
        uid, taken, registry = meta.uid, Taken(meta.uid, meta.resourceVersion), self._registry
        entry = registry.entry(uid)
        if entry is None and not registry.is_cardless(uid) and is_misnamed("pod", meta):
            return taken
        try:
            if change is Change.PUT and entry is not None and is_older(meta.resourceVersion or "", entry.version):
                # The API server has shown a newer one: a watch may be behind a read.
                return taken
            self._informer.shown(wire, uid)
        except msgspec.DecodeError as error:
            return self._undecodable(raw, error)
        except Exception:  # noqa: BLE001 - one pod with a bug's attention must not keep all others from being seen
            logger().exception("pod cannot be taken", uid=uid)
            return taken
        self._events.seen.publish(uid)
        return taken

    def replaced(self, identities: set[str]) -> None:
        """Drop every pod that a list did not name, unless its bind is in flight.

        A watch event that shows a bound pod without a node is old; a list that shows it so may be right.
        """
        for uid in self._registry.take_contradicted():
            self._events.contradicted.publish(uid)
        for uid in sorted(self._registry.watched() - identities):
            self._registry.unlist(uid)
            self._events.seen.publish(uid)

    def _deleted(self, raw: msgspec.Raw) -> Taken:
        """Forget a pod. Nothing matters but what names it, so the rest need not even decode."""
        gone = name_of(raw)
        if not gone.uid:
            logger().error("pod without a UID")
            return Taken(None)
        self._registry.forget(gone.uid)
        self._events.seen.publish(gone.uid)
        return Taken(gone.uid, gone.resourceVersion)

    def _undecodable(self, raw: msgspec.Raw, error: msgspec.DecodeError) -> Taken:
        """Keep what is known of a pod whose new object does not decode, and say so."""
        uid = name_of(raw).uid
        logger().error("pod does not decode", uid=uid, why=watched.why_undecodable(raw, error))
        return Taken(uid)


class NodeSink:
    """Nodes by name."""

    def __init__(self, cluster: Cluster, facts: Facts) -> None:
        self._cluster = cluster
        self._facts = facts
        self._decoder = msgspec.json.Decoder(core_v1.Node)

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one node."""
        try:
            wire = read_with(self._decoder, raw)
        except msgspec.DecodeError as error:
            return self._undecodable(change, raw, str(error))
        meta = wire.metadata
        if meta is None or not meta.name:
            logger().error("node without a name")
            return Taken(None)
        taken = Taken(meta.name, meta.resourceVersion)
        if meta.name not in self._facts.nodes and is_misnamed("node", meta):
            return taken
        if change is Change.DELETED:
            self._drop(meta.name)
            return taken
        try:
            self._cluster.put_node(convert_node(wire, self._cluster.settings))
        except Exception:  # noqa: BLE001 - as for pods
            logger().exception("node cannot be taken", node=meta.name)
            return taken
        self._note(meta.name, node_facts(meta))
        return taken

    def replaced(self, identities: set[str]) -> None:
        """Drop every node that a list did not name."""
        for name in sorted(self._facts.nodes.keys() - identities):
            self._drop(name)

    def _note(self, name: str, facts: NodeFacts) -> None:
        """Remember a node's version and lock, unless our own write of the lock returned a newer one."""
        known = self._facts.nodes.get(name)
        if known is not None and is_older(facts.resource_version, known.resource_version):
            return
        self._facts.nodes[name] = facts
        if known is None or known.lock != facts.lock:
            self._cluster.events.lock_changed.publish(name)

    def _undecodable(self, change: Change, raw: msgspec.Raw, why: str) -> Taken:
        """Keep what is known of a node whose new object does not decode, and say so; a deletion still counts."""
        name = name_of(raw).name
        logger().error("node does not decode", node=name, why=why)
        if name and change is Change.DELETED:
            self._drop(name)
        return Taken(name)

    def _drop(self, name: str) -> None:
        self._facts.nodes.pop(name, None)
        self._cluster.remove_node(name)
        self._cluster.events.lock_changed.publish(name)


class QuotaSink:
    """ResourceQuotas by namespace and name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, tuple[str, str]] = {}
        self._decoder = msgspec.json.Decoder(core_v1.ResourceQuota)

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one quota."""
        try:
            wire = read_with(self._decoder, raw)
        except msgspec.DecodeError as error:
            # What is known of it stays.
            meta = name_of(raw)
            logger().error("resourcequota does not decode", quota=f"{meta.namespace}/{meta.name}", why=str(error))
            return Taken(f"{meta.namespace}/{meta.name}" if meta.name else None)
        if is_misnamed("resourcequota", wire.metadata):
            return Taken(None)
        quota = convert_quota(wire, self._cluster.settings)
        identity = f"{quota.namespace}/{quota.name}"
        if change is Change.DELETED:
            self._known.pop(identity, None)
            self._cluster.remove_quota(quota.namespace, quota.name)
        else:
            self._known[identity] = quota.namespace, quota.name
            self._cluster.put_quota(quota)
        return Taken(identity, wire.metadata.resourceVersion if wire.metadata is not None else None)

    def replaced(self, identities: set[str]) -> None:
        """Drop every quota that a list did not name."""
        for identity in sorted(self._known.keys() - identities):
            self._cluster.remove_quota(*self._known.pop(identity))
