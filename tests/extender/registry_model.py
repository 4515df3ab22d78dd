"""What the registry must know of pods, in plain Python, without regard to speed.

It exists because the registry keeps one pod in several indices, and takes short cuts for events that change nothing. It
must not use the code under test beyond the names of states and events. Invariant: every method is one event, written as
the table and the essay beside it say, without a short cut.
"""

from dataclasses import dataclass, field, replace

from accounting.pod_state import PodState
from extender.cluster import Heard


@dataclass(frozen=True)
class Told:
    """A pod as an event shows it: an init that asks for twice what its app asks for, on one card."""

    uid: str
    name: str
    node: str | None = None
    memory: int = 1
    card: int | None = 0
    """The number of the card that its annotation names; None: there is no annotation, -1: it cannot be read."""
    terminal: bool = False
    over: bool = False
    """Whether its init has ended."""
    asks: bool = True
    version: int = 1
    rejection: str = ""

    @property
    def readable(self) -> bool:
        """Whether its annotation can be read."""
        return self.card is not None and self.card >= 0

    @property
    def rows(self) -> dict[str, int]:
        """Return the memory of its app by card."""
        return {f"GPU-{self.node}-{self.card}": self.memory} if self.readable else {}


@dataclass(frozen=True)
class Booking:
    """What a booked pod holds."""

    state: PodState
    node: str
    rows: dict[str, int]
    total: int
    """The app's memory by card; the init's is twice that."""
    over: bool
    readable: bool

    @property
    def held(self) -> dict[str, int]:
        """Return the memory by card that it holds now."""
        return {uuid: memory * (1 if self.over else 2) for uuid, memory in self.rows.items()}

    @property
    def charged(self) -> int:
        """Return the memory that its namespace is charged now."""
        return self.total * (1 if self.over else 2)


@dataclass
class Known:
    """One pod."""

    told: Told
    heard: Heard
    booking: Booking | None = None
    claim: bool = False
    version: int | None = None
    unlisted: bool = False
    contradicted: bool = False
    rejection: str = ""
    rejection_at_claim: str | None = None


@dataclass
class Model:
    """Everything that is known."""

    live: bool
    most_asked: int
    pods: dict[str, Known] = field(default_factory=dict)
    cardless: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def state(self, uid: str) -> PodState | None:
        known = self.pods.get(uid)
        if known is None:
            return None
        if known.booking is not None:
            return known.booking.state
        return PodState.CLAIMED if known.claim else PodState.KNOWN

    # -- who tells ------------------------------------------------------------------------------------------------

    def ask(self, told: Told) -> None:
        known = self.pods.get(told.uid)
        if known is not None and known.heard is not Heard.QUESTION:
            return
        self.put(replace(told, node=None, card=None), Heard.QUESTION, takes_name=False)
        if len(self.asked) > self.most_asked:
            self.forget(self.asked[0])

    def question(self, told: Told) -> None:
        """Take the pod's version and rejection from filter's question, if they are newer."""
        known = self.pods.get(told.uid)
        if known is not None and (known.version is None or known.version < told.version):
            known.version, known.rejection = told.version, told.rejection if told.node is None else ""

    def put(self, told: Told, heard: Heard, *, takes_name: bool = True) -> None:
        """Take what a file, a request or a question says as the present state."""
        uid = told.uid
        holder = self.names.get(told.name)
        if takes_name and holder is not None and holder != uid and not self.live:
            self.forget(holder)
        known = self.pods.get(uid)
        if known is None:
            known = self.pods[uid] = Known(told, heard)
        self._rename(known, told, takes_name=takes_name)
        before = known.booking
        known.booking = self._booking(told, before)
        if known.booking is not None or told.terminal:
            known.claim, known.rejection_at_claim = False, None
        known.told = told
        self.cardless.pop(uid, None)
        self._hear(known, heard)

    def see(self, told: Told, heard: Heard) -> None:
        """Take what a watch or a read says of a pod."""
        uid = told.uid
        if not told.asks and not (told.node is not None and told.card is not None):
            self._drop(uid)
            self.cardless.pop(uid, None)
            if told.node is not None and not told.terminal:
                self.cardless[uid] = told.node
            return
        if told.terminal:
            self.forget(uid)
            return
        known = self.pods.get(uid)
        is_added = known is not None and known.booking is not None and known.booking.state is PodState.ADDED
        if told.node is not None or not is_added:
            self.put(told, heard)
        self._note(self.pods[uid], told, heard)

    def unlist(self, uids: set[str]) -> None:
        """A list names only these."""
        for known in self.pods.values():
            known.contradicted = False
        for uid in sorted((self.pods.keys() | self.cardless.keys()) - uids):
            known_or_none = self.pods.get(uid)
            if known_or_none is not None and known_or_none.heard is Heard.QUESTION:
                continue
            if self.state(uid) in (PodState.ASSUMED, PodState.BOUND):
                self.pods[uid].unlisted = True
            else:
                self.forget(uid)

    def forget(self, uid: str) -> None:
        self.cardless.pop(uid, None)
        self._drop(uid)

    # -- binding --------------------------------------------------------------------------------------------------

    def claim(self, uid: str) -> None:
        known = self.pods.get(uid)
        if known is not None and known.booking is None:
            known.claim, known.rejection_at_claim = True, known.rejection

    def end_claim(self, uid: str) -> None:
        known = self.pods.get(uid)
        if known is not None:
            known.claim, known.rejection_at_claim = False, None

    def assume(self, told: Told) -> None:
        known = self.pods.get(told.uid)
        if known is None:
            known = self.pods[told.uid] = Known(replace(told, node=None, card=None), Heard.BIND)
        if known.heard is Heard.QUESTION:
            self._hear(known, Heard.BIND)
        self.names.setdefault(known.told.name, told.uid)
        known.claim, known.rejection_at_claim = False, None
        if known.booking is None or known.booking.state is not PodState.ADDED:
            known.booking = Booking(PodState.ASSUMED, str(told.node), told.rows, told.memory, told.over, readable=True)

    def finish(self, uid: str) -> None:
        known = self.pods.get(uid)
        if known is not None and known.booking is not None and known.booking.state is PodState.ASSUMED:
            known.booking = replace(known.booking, state=PodState.BOUND)

    def forget_binding(self, uid: str) -> None:
        known = self.pods.get(uid)
        if known is not None and known.booking is not None and known.booking.state is not PodState.ADDED:
            known.booking = None

    def lose(self, uid: str) -> None:
        known = self.pods.get(uid)
        if known is not None:
            known.booking, known.contradicted = None, False
            known.told = replace(known.told, node=None, card=None)

    # -- the rules ------------------------------------------------------------------------------------------------

    def _booking(self, told: Told, before: Booking | None) -> Booking | None:
        if told.terminal:
            return None
        if told.node is None:
            return None if before is None or before.state is PodState.ADDED else before
        made = Booking(PodState.ADDED, told.node, told.rows, told.memory, told.over, told.readable)
        if before is None or before.node != told.node or before.state is PodState.ASSUMED or not before.readable:
            return made
        if not made.readable:
            return replace(made, rows=before.rows, total=before.total, readable=True)
        if not self.live:
            return made
        uuids = before.rows.keys() | made.rows.keys()
        larger = {uuid: max(before.rows.get(uuid, 0), made.rows.get(uuid, 0)) for uuid in uuids}
        return replace(made, rows=larger, total=max(before.total, made.total))

    def _note(self, known: Known, told: Told, heard: Heard) -> None:
        known.unlisted = False
        rejection = told.rejection if told.node is None else ""
        if heard is Heard.READ:
            known.version, known.rejection = told.version, rejection
            return
        if known.version is None or told.version >= known.version:
            known.version, known.rejection = told.version, rejection
        known.contradicted = told.node is None and known.booking is not None
        if known.rejection_at_claim is not None and known.rejection not in ("", known.rejection_at_claim):
            known.claim, known.rejection_at_claim = False, None

    def _rename(self, known: Known, told: Told, *, takes_name: bool) -> None:
        if known.told.name != told.name and self.names.get(known.told.name) == told.uid:
            del self.names[known.told.name]
        if takes_name:
            self.names[told.name] = told.uid
        self.names.setdefault(told.name, told.uid)

    def _hear(self, known: Known, heard: Heard) -> None:
        if known.told.uid in self.asked:
            self.asked.remove(known.told.uid)
        if heard is Heard.QUESTION:
            self.asked.append(known.told.uid)
        known.heard = heard

    def _drop(self, uid: str) -> None:
        known = self.pods.pop(uid, None)
        if known is None:
            return
        if self.names.get(known.told.name) == uid:
            del self.names[known.told.name]
        if uid in self.asked:
            self.asked.remove(uid)
