"""Device plugins that were found gone: the cards of their vendor take no pods.

Why it exists: a node keeps its register when its plugin ends, and only the handshake tells. It must not know how a
handshake is read. Invariant: a node that is recorded again is counted as its plugins were last found.
"""

from dataclasses import replace

from accounting.node import Node
from accounting.state.cache import Cache
from extender.cluster.events import Events


class Plugins:
    """Which vendors' plugins are gone, by node."""

    def __init__(self, cache: Cache, events: Events) -> None:
        self._cache = cache
        self._events = events
        self._gone: set[tuple[str, str]] = set()  # node, vendor key

    def as_counted(self, node: Node) -> Node:
        """Return a node with the cards of vendors whose plugin is gone marked so."""
        gone = {vendor for name, vendor in self._gone if name == node.name}
        if not gone:
            return node
        return replace(
            node, devices=tuple(replace(each, gone=True) if each.vendor in gone else each for each in node.devices)
        )

    def is_gone(self, node: str, vendor: str) -> bool:
        """Whether a vendor's plugin on a node was found gone."""
        return (node, vendor) in self._gone

    def note(self, node: str, vendor: str, *, alive: bool) -> bool:
        """Note whether a vendor's plugin on a known node runs; returns whether that has changed."""
        if alive is not self.is_gone(node, vendor):
            return False
        self._gone ^= {(node, vendor)}
        known = self._cache.nodes[node]
        devices = tuple(replace(each, gone=not alive) if each.vendor == vendor else each for each in known.devices)
        self._cache.update_node(replace(known, devices=devices))
        self._events.plugin_changed.publish(node, vendor, alive)
        self._events.node_changed.publish(node)
        return True

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._gone -= {(node, vendor) for node, vendor in self._gone if node == name}
