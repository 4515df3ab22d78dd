"""The events of a cluster: one frozen type per event, one topic per type.

Why it exists: code that changes a pod, a node or a quota must not know who depends on it. Listeners subscribe, and an
application does this for all of them in one place. It must not know subscribers. Invariants: an event is published
after the state has changed, in the same step; subscribers are called at once, in the order in which they subscribed; an
event that has no subscriber is not even made.
"""

from collections.abc import Callable
from typing import Generic, Literal, NamedTuple, ParamSpec, TypeVar

from accounting.answers import Claim
from accounting.holders import Budgets, Hold, VmiKey
from accounting.packing.workload import Workload
from accounting.pod import Pod

P = ParamSpec("P")
E = TypeVar("E")


class Topic(Generic[P, E]):
    """Events of one type, and their subscribers."""

    __slots__ = ("_kind", "_subscribers")

    def __init__(self, kind: Callable[P, E]) -> None:
        """`kind`: makes an event from the arguments of `publish`."""
        self._kind = kind
        self._subscribers: tuple[Callable[[E], None], ...] = ()

    def subscribe(self, *subscribers: Callable[[E], None]) -> None:
        """Call these with every event from now on, after those that subscribed before."""
        self._subscribers += subscribers

    def publish(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Make an event and pass it to all subscribers, if there are any."""
        if self._subscribers:
            event = self._kind(*args, **kwargs)
            for subscriber in self._subscribers:
                subscriber(event)


# -- state ------------------------------------------------------------------------------------------------------------


class Freed(NamedTuple):
    """Something may have become free on a node."""

    node: str


class Seen(NamedTuple):
    """The watch showed a pod, or a list left it out."""

    uid: str


class Over(NamedTuple):
    """A pod is forgotten: it has ended, its object is gone, or it concerns no cards."""

    uid: str


class Kept(NamedTuple):
    """A pod that concerns cards is kept as it is now. `before`: as it was kept before, None if it was not."""

    before: Pod | None
    pod: Pod


class Changed(NamedTuple):
    """What a pod holds, or where, has changed; or it is forgotten."""

    uid: str


class MachineChanged(NamedTuple):
    """A VMI changed or is gone. `listed`: the UIDs that it lists or has listed before."""

    key: VmiKey
    listed: frozenset[str]


class Cardless(NamedTuple):
    """A pod on a node neither asks for nor holds cards."""

    pod: Pod


class CardlessOver(NamedTuple):
    """A pod without cards has ended, is gone, or concerns cards now."""

    uid: str


class Contradicted(NamedTuple):
    """A list shows a pod without a node though its Binding was accepted."""

    uid: str


class NodeChanged(NamedTuple):
    """A node's cards changed, or whether they may take pods."""

    name: str


class CardChanged(NamedTuple):
    """A card is over-committed, or no longer, by what DRA claims hold."""

    node: str
    uuid: str


class LockChanged(NamedTuple):
    """A node's lock annotation changed, or the node is gone."""

    node: str


class QuotaChanged(NamedTuple):
    """A namespace's limits changed."""

    namespace: str


# -- decisions, from which a journal repeats what followed -----------------------------------------------------------


class Assumed(NamedTuple):
    """A bind booked a pod, given with its node and its cards."""

    pod: Pod


class Finished(NamedTuple):
    """The Binding of an assumed pod was accepted."""

    uid: str


class Forgotten(NamedTuple):
    """A booking was undone: its bind failed for certain."""

    uid: str


class Refused(NamedTuple):
    """A bind found no cards for a pod on a node."""

    uid: str
    node: str
    why: str


class Lost(NamedTuple):
    """The API server has lost an accepted Binding."""

    uid: str


class PodRead(NamedTuple):
    """One pod was read from the API server. `text`: the object as JSON; of a deleted one its UID is enough."""

    change: Literal["put", "deleted"]
    text: str


class Claimed(NamedTuple):
    """A pod claimed cards on the node where it will probably go."""

    uid: str
    claim: Claim


class Unclaimed(NamedTuple):
    """A pod's claim ended."""

    uid: str


class PluginChanged(NamedTuple):
    """A vendor's plugin on a node was found gone, or running again."""

    node: str
    vendor: str
    alive: bool


class WorkloadExpected(NamedTuple):
    """From here on policies that look ahead expect this workload."""

    workload: Workload


class RawBudgetsChanged(NamedTuple):
    """From here on these budgets of whole devices are in force."""

    budgets: Budgets


class ClaimGiven(NamedTuple):
    """A claim that was made for a pod has been given devices."""

    uid: str
    """Of the pod."""


class DevicesChanged(NamedTuple):
    """A slice that names devices of a node is new, has changed, or is gone."""

    node: str


class HoldsDecided(NamedTuple):
    """A pass has decided where the devices of a VM are held."""

    key: VmiKey
    holds: tuple[Hold, ...]


class Events:
    """The topics of one cluster."""

    def __init__(self) -> None:
        self.freed = Topic(Freed)
        self.seen = Topic(Seen)
        self.over = Topic(Over)
        self.kept = Topic(Kept)
        self.changed = Topic(Changed)
        self.machine_changed = Topic(MachineChanged)
        self.cardless = Topic(Cardless)
        self.cardless_over = Topic(CardlessOver)
        self.contradicted = Topic(Contradicted)
        self.node_changed = Topic(NodeChanged)
        self.card_changed = Topic(CardChanged)
        self.lock_changed = Topic(LockChanged)
        self.quota_changed = Topic(QuotaChanged)
        self.assumed = Topic(Assumed)
        self.finished = Topic(Finished)
        self.forgotten = Topic(Forgotten)
        self.refused = Topic(Refused)
        self.lost = Topic(Lost)
        self.pod_read = Topic(PodRead)
        self.claimed = Topic(Claimed)
        self.unclaimed = Topic(Unclaimed)
        self.plugin_changed = Topic(PluginChanged)
        self.workload_expected = Topic(WorkloadExpected)
        self.raw_budgets_changed = Topic(RawBudgetsChanged)
        self.claim_given = Topic(ClaimGiven)
        self.devices_changed = Topic(DevicesChanged)
        self.holds_decided = Topic(HoldsDecided)
