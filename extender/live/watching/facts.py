"""What a live cluster remembers of nodes apart from their cards: versions, locks, handshakes.

It must not know cards. Invariant: an entry exists exactly while its node does, as far as the watch has shown.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from extender.convert import NODE_LOCK
from extender.wire import core_v1

#: What the names of all handshake annotations begin with.
_HANDSHAKE = "hami.io/node-handshake"


class NodeFacts(NamedTuple):
    """What the node lock needs of a node."""

    resource_version: str
    lock: str | None
    """The lock annotation's text."""
    handshakes: tuple[tuple[str, str], ...] = ()
    """Handshake annotations and their texts."""


@dataclass(slots=True)
class Facts:
    """Facts by node name."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)


def node_facts(meta: core_v1.ObjectMeta) -> NodeFacts:
    """Return a node's facts."""
    annotations = meta.annotations or {}
    handshakes = tuple((key, text) for key, text in annotations.items() if key.startswith(_HANDSHAKE))
    return NodeFacts(meta.resourceVersion or "", annotations.get(NODE_LOCK) or None, handshakes)
