"""Metrics per DRA claim, as Prometheus' text, made in steps.

It must not be on by default: such labels are not bounded. Invariants: all samples of a metric follow its HELP and TYPE;
a step takes some milliseconds at most; only cards that their node registers are listed.
"""

from collections.abc import Callable, Iterator

from accounting.holders import Claim, ClaimedCard
from accounting.holdings import DeviceUse
from extender.cluster import Cluster
from extender.server.prometheus_text import head, quoted

_PER_STEP = 500
_MIB = 1 << 20
_HELD: tuple[tuple[str, str, Callable[[DeviceUse], float]], ...] = (
    ("slots", "Slots of a card that a DRA claim holds.", lambda use: use.slots),
    ("memory_bytes", "Memory of a card that a DRA claim holds.", lambda use: use.memory * _MIB),
    ("cores_ratio", "Cores of a card that a DRA claim holds; 1 is a whole card.", lambda use: use.cores / 100),
)


def claim_series(cluster: Cluster) -> Iterator[bytes]:
    """Yield what DRA claims hold of cards that nodes register; an empty text is a step."""
    held = cluster.resource_claims.held()
    given: list[tuple[str, DeviceUse]] = []
    for first in range(0, len(held), _PER_STEP):
        given += [
            (_labels(claim, card), card.use)
            for claim, holding in held[first : first + _PER_STEP]
            for card in holding.cards
            if cluster.cache.card_size(card.node, card.use.uuid) is not None
        ]
        yield b""
    for name, text, value in _HELD:
        yield head(f"gpu_extender_claim_{name}", text)
        for first in range(0, len(given), _PER_STEP):
            part = given[first : first + _PER_STEP]
            yield "".join(f"gpu_extender_claim_{name}{labels} {value(use)}\n" for labels, use in part).encode()


def _labels(claim: Claim, card: ClaimedCard) -> str:
    uuid, node = quoted(card.use.uuid), quoted(card.node)
    return f'{{namespace="{claim.namespace}",claim="{claim.name}",node="{node}",uuid="{uuid}"}}'
