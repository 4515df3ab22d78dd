"""From watched objects that tell of holds to the cluster.

It must not do I/O, nor decide where anything is held. Invariants: one object that cannot be used changes nothing but
itself, and what was known of it stays; the version of each object is that which was told last.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from extender.cluster import Cluster
from extender.cluster.hold_sets import Name
from extender.config import HoldSource
from extender.convert import InputError, convert_hold
from extender.kube.client import KubeClient
from extender.kube.discovery import OptionalReflector, OptionalResource
from extender.kube.reflector import Change, ReflectorSettings, Sink, Taken
from extender.live.watching.naming import name_of
from extender.logs import logger
from extender.wire.names import why_no_label, why_no_subdomain
from extender.wire.shallow import read_json


def hold_resource(source: HoldSource) -> OptionalResource:
    """Return the resource that is watched."""
    return OptionalResource(source.group, (source.version,), source.plural)


def hold_reflectors(
    client: KubeClient,
    cluster: Cluster,
    settings: ReflectorSettings,
    journaled: Callable[[Sink, str], Sink],
    sink: "HoldSink | None",
) -> list[OptionalReflector]:
    """Return what watches objects that tell of holds; nothing where no resource is named."""
    source = cluster.settings.hold_source
    if source is None or sink is None:
        return []
    return [OptionalReflector(client, hold_resource(source), journaled(sink, "Hold"), settings, known=sink.known)]


class HoldSink:
    """Objects by namespace and name."""

    def __init__(self, cluster: Cluster, source: HoldSource) -> None:
        self.versions: dict[Name, tuple[str, str]] = {}
        """UID and version of each object."""
        self._cluster = cluster
        self._source = source

    def known(self) -> set[str]:
        """Return what a list would have to name."""
        return {"/".join(name) for name in self._cluster.hold_sets.names()}

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one object."""
        meta = name_of(raw)
        name = meta.namespace or "default", meta.name or ""
        if why_no_label(name[0]) or why_no_subdomain(name[1]):
            # Its name would be in paths.
            logger().error("hold without a legal name", hold="/".join(name))
            return Taken(None)
        identity = "/".join(name)
        if change is Change.DELETED:
            self.versions.pop(name, None)
            self._cluster.hold_sets.remove(name)
            return Taken(identity, meta.resourceVersion)
        try:
            tree: dict[str, Any] = read_json(raw, dict[str, Any])
            hold = convert_hold(tree, self._source, self._cluster.settings)
        except (msgspec.DecodeError, InputError) as error:
            logger().error("hold cannot be read", hold=identity, why=str(error))
            return Taken(identity, meta.resourceVersion)
        self.versions[name] = meta.uid or "", meta.resourceVersion or ""
        self._cluster.hold_sets.put(hold)
        return Taken(identity, meta.resourceVersion)

    def replaced(self, identities: set[str]) -> None:
        """Give up every hold that a list did not name."""
        for identity in sorted(self.known() - identities):
            namespace, _, name = identity.partition("/")
            self.versions.pop((namespace, name), None)
            self._cluster.hold_sets.remove((namespace, name))
