"""What is known of one pod, and every step from one such state to the next: the state table.

Two rules. Everything about these steps is in this file, and whoever keeps pods runs from its table; and the file knows
neither cards nor nodes, only what was told of one pod (by UID).

kube-scheduler has no reserve verb, runs binds in the background and filters the next pod before the last Binding is
accepted. So between "fits" and "the watch shows it" a pod passes through states in which its cards must count although
no API object says so:

                           claim                 assume              finish             seen bound
    nothing ---> KNOWN ------------> CLAIMED ------------> ASSUMED ------------> BOUND ------------> ADDED
       ^           |  <------------    |                     |                     |                   |
       |           |    claim over     |                     |                     |                   |
       |           | <-----------------+------ forget -------+------ forget -------+                   |
       |           | <------------------------ lost, ended --+------ lost, ended --+---- lost, ended --+
       |           |                                                                                   |
       +-- gone ---+-- gone, from every state. Assume and seen bound also come from every state before, since the watch
                       may be quicker than the answer to the Binding, and others bind, too.

States. KNOWN: heard of, holds nothing. CLAIMED: passed filter; a hint that counts nothing, but a state, since nobody
has to look at two places to know where a pod is. ASSUMED: bind has fitted the pod and is writing, or does not know what
became of the write. BOUND: the Binding was accepted. ADDED: the API server has shown the pod on its node. In the last
three (`BOOKED`) a pod's cards are its own.

What is told:

- *asked about*: filter showed the pod. *claim*: it will probably go to some node. *claim over*: by age, because filter
  or another plugin refused the pod, or because its bind failed.
- *assume*, *finish*, *forget*: bind fitted it and is about to write; the Binding was accepted; it failed for certain.
- *seen bound* is the truth, whatever was assumed. It wins over every state, and what comes later from bind (assume,
  finish, forget) does not change it.
- *seen unbound*: the pod is now without a node, by a file or a request that replaces it. In ASSUMED or BOUND that is
  from before the Binding, since events and answers travel on different connections; in ADDED the booking ends.
- *seen late*: a watch, a list or a read shows it without a node. A watch is behind our own writes and reads, after a
  broken connection by minutes, and a pod never leaves its node: of a pod that is booked this says nothing.
- *unlisted*: a list does not name it. A list may be older than a bind in flight, so for ASSUMED and BOUND a read of the
  pod decides.
- *lost*: a read that began after the Binding was accepted shows the pod without a node.
- *ended*: it is in a terminal phase and holds nothing. *gone*: its object is gone, or it concerns no cards. A bind that
  is still in flight gets its 404 or 409.

Invariant: only ASSUMED can come from a decision of this process alone, and every path out of it is one of finish,
forget, seen bound, lost, ended or gone. A bind without an answer stays ASSUMED until one of them is known.

Source: kube-scheduler's pkg/scheduler/backend/cache/interface.go, with the extender as the binder.
"""

from enum import StrEnum


class PodState(StrEnum):
    """What is known of a pod. A pod without a state is not known at all."""

    KNOWN = "known"
    CLAIMED = "claimed"
    ASSUMED = "assumed"
    BOUND = "bound"
    ADDED = "added"


class PodEvent(StrEnum):
    """What was told of a pod."""

    ASKED = "asked about"
    CLAIM = "claim"
    UNCLAIM = "claim over"
    ASSUME = "assume"
    FINISH = "finish"
    FORGET = "forget"
    LOSE = "lost"
    SEEN_BOUND = "seen bound"
    SEEN_UNBOUND = "seen unbound"
    SEEN_LATE = "seen late"
    UNLISTED = "unlisted"
    ENDED = "ended"
    GONE = "gone"


KNOWN, CLAIMED, ASSUMED, BOUND, ADDED = PodState
_STATES: tuple[PodState | None, ...] = (None, *PodState)

#: The states in which a pod's cards are its own.
BOOKED = frozenset({ASSUMED, BOUND, ADDED})

#: Event -> the next state of a pod in each state. None is "not known".
# fmt: off
_NEXT: dict[PodEvent, tuple[PodState | None, ...]] = {
    #                       None     KNOWN    CLAIMED  ASSUMED  BOUND    ADDED
    PodEvent.ASKED:        (KNOWN,   KNOWN,   CLAIMED, ASSUMED, BOUND,   ADDED),
    PodEvent.CLAIM:        (None,    CLAIMED, CLAIMED, ASSUMED, BOUND,   ADDED),
    PodEvent.UNCLAIM:      (None,    KNOWN,   KNOWN,   ASSUMED, BOUND,   ADDED),
    PodEvent.ASSUME:       (ASSUMED, ASSUMED, ASSUMED, ASSUMED, ASSUMED, ADDED),
    PodEvent.FINISH:       (None,    KNOWN,   CLAIMED, BOUND,   BOUND,   ADDED),
    PodEvent.FORGET:       (None,    KNOWN,   CLAIMED, KNOWN,   KNOWN,   ADDED),
    PodEvent.LOSE:         (None,    KNOWN,   CLAIMED, KNOWN,   KNOWN,   KNOWN),
    PodEvent.SEEN_BOUND:   (ADDED,   ADDED,   ADDED,   ADDED,   ADDED,   ADDED),
    PodEvent.SEEN_UNBOUND: (KNOWN,   KNOWN,   CLAIMED, ASSUMED, BOUND,   KNOWN),
    PodEvent.SEEN_LATE:    (KNOWN,   KNOWN,   CLAIMED, ASSUMED, BOUND,   ADDED),
    PodEvent.UNLISTED:     (None,    None,    None,    ASSUMED, BOUND,   None),
    PodEvent.ENDED:        (KNOWN,   KNOWN,   KNOWN,   KNOWN,   KNOWN,   KNOWN),
    PodEvent.GONE:         (None,    None,    None,    None,    None,    None),
}
# fmt: on

#: (state, event) -> the next state.
TRANSITIONS: dict[tuple[PodState | None, PodEvent], PodState | None] = {
    (state, event): following for event, row in _NEXT.items() for state, following in zip(_STATES, row, strict=True)
}

#: The same for those who keep bookings alone: None is "no booking".
BOOKINGS: dict[tuple[PodState | None, PodEvent], PodState | None] = {
    (state, event): following if following in BOOKED else None
    for (state, event), following in TRANSITIONS.items()
    if state is None or state in BOOKED
}
