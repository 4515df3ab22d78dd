"""What ResourceClaims hold on cards.

Why it exists: a card that DRA has allocated is not free for annotated pods, and the extender is never asked about pods
that use only claims. It must not know pods: a claim holds its cards as long as it is allocated, so nothing here depends
on pods, containers or phases. Invariants: each result counts once per claim; admin access counts nothing; a device of a
GPU driver that is not a known card is reported, never ignored.

Source: resource.k8s.io/v1 `status.allocation.devices.results` (KEP-4381, KEP-5075 for shares).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from accounting.holders.dra_devices import GPU_DRIVERS, Card, DeviceId, DeviceKind, DeviceTable
from accounting.holdings import EXCLUSIVE_CORES, DeviceUse, Resources

_MEBI = 2**20
_WHOLE_PERCENT = 100


class Result(NamedTuple):
    """One allocated device of a claim."""

    device: DeviceId
    admin_access: bool = False
    share_id: str = ""
    memory_bytes: int | None = None
    """For a share, its consumedCapacity of memory; None: all of it."""
    cores: int | None = None
    """For a share, its consumedCapacity of cores in percent, rounded up; None: all of them."""


class Claim(NamedTuple):
    """A ResourceClaim. `results` is empty while it has no allocation."""

    uid: str
    namespace: str
    name: str
    results: tuple[Result, ...] = ()
    node: str | None = None
    """The node to which `allocation.nodeSelector` limits it by metadata.name, if any."""
    owner: str = ""
    """UID of the pod that it was made for; "" if it was made by itself."""

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


class ClaimedCard(NamedTuple):
    """What a claim holds on one card."""

    node: str
    use: DeviceUse
    closed: bool
    """Whether no row of an annotation may join, because the card is taken whole or in MIG mode."""


class ClaimHolding(NamedTuple):
    """What a claim holds by node and card, and its devices that are not known cards, each with the node to block."""

    cards: tuple[ClaimedCard, ...] = ()
    unmapped: tuple[tuple[str, DeviceId], ...] = ()


Totals = Callable[[str, str], Resources | None]
"""Node, card UUID -> what the card registers; None if its node registers no such card."""


def held_by_claim(claim: Claim, devices: DeviceTable, totals: Totals) -> ClaimHolding:
    """Return what a claim holds. A card that its node does not register has the size given by DRA."""
    cards: dict[tuple[str, str], ClaimedCard] = {}
    unmapped = []
    for result in claim.results:
        device = result.device
        if result.admin_access or device.driver not in GPU_DRIVERS:
            continue
        card = devices.card(device)
        node = _node(claim, device, devices, card)
        if card is None:
            unmapped.append((node, device))
            continue
        taken = _taken(result, card, totals(node, card.uuid), devices)
        place = node, card.uuid
        known = cards.get(place)
        cards[place] = ClaimedCard(node, *taken) if known is None else _together(known, *taken)
    return ClaimHolding(tuple([cards[place] for place in sorted(cards)]), tuple(unmapped))


def charged_devices(requests: Iterable[tuple[str, int | None]]) -> dict[str, int]:
    """Return the quota charge per device class. `requests`: (class, count), None for allocationMode All.

    Every alternative of a prioritized list is charged, so all must be given. Source: KEP-4381, 32 results at most.
    """
    charged: dict[str, int] = {}
    for device_class, count in requests:
        charged[device_class] = charged.get(device_class, 0) + (_MOST_RESULTS if count is None else count)
    return charged


#: The most results of one claim, and the charge of a request with allocationMode All.
_MOST_RESULTS = 32


def _node(claim: Claim, device: DeviceId, devices: DeviceTable, card: Card | None) -> str:
    """Return the node of a device: its slice's, else the one to which the claim is limited, else the pool's name."""
    by_slice = card.node if card is not None else devices.node_of(device.driver, device.pool)
    return by_slice or claim.node or device.pool


def _taken(result: Result, card: Card, total: Resources | None, devices: DeviceTable) -> tuple[DeviceUse, bool]:
    """Return what one result takes of its card, and whether it closes the card."""
    if card.kind is DeviceKind.MIG:
        whole = devices.whole_multiprocessors(result.device.pool, card.uuid)
        cores = _WHOLE_PERCENT * card.multiprocessors // whole if whole else 0
        return DeviceUse(card.uuid, 1, -(-card.memory_bytes // _MEBI), cores), True
    size = total or Resources(1, -(-card.memory_bytes // _MEBI), _WHOLE_PERCENT)
    if result.share_id:
        memory = size.memory if result.memory_bytes is None else -(-result.memory_bytes // _MEBI)
        return DeviceUse(card.uuid, 1, memory, EXCLUSIVE_CORES if result.cores is None else result.cores), False
    return DeviceUse(card.uuid, size.slots, size.memory, _WHOLE_PERCENT, True), True  # noqa: FBT003 - exclusive


def _together(known: ClaimedCard, use: DeviceUse, closed: bool) -> ClaimedCard:  # noqa: FBT001 - see `_taken`
    """Return the sum of two results on one card."""
    one = known.use
    summed = DeviceUse(
        one.uuid,
        one.slots + use.slots,
        one.memory + use.memory,
        one.cores + use.cores,
        one.exclusive or use.exclusive,
        crowded=one.crowded or one.exclusive or use.exclusive or known.closed is not closed,
    )
    return ClaimedCard(known.node, summed, known.closed or closed)
