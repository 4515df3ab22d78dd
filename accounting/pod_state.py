"""How far a pod's booking is confirmed: the state table.

Two rules. Everything about these transitions is in this file; and the file knows neither cards nor nodes, only what was
told of one pod (by UID).

Theory. kube-scheduler has no reserve verb, runs binds in the background and filters the next pod before the last
Binding is accepted. So between "fits" and "the watch shows it" a pod passes through states in which its cards must
count although no API object says so:

    nothing --assume--> ASSUMED --finish--> BOUND --seen bound--> ADDED --ended--> nothing
                           |                  |                     |
                           +---- forget ------+                     +-- seen unbound --> nothing
                           |
                           +-- seen bound --> ADDED   (the watch was quicker than the answer to the Binding)

- *assume*: bind fitted the pod and is about to write.
- *finish*: the Binding was accepted.
- *forget*: it failed for certain.
- *seen bound* is the truth, whatever was assumed. It wins over every state, and what comes later from bind (assume,
  finish, forget) does not change it.
- *seen unbound* in ASSUMED or BOUND is an event from before the Binding: events and answers travel on different
  connections. It takes nothing away. In ADDED it means that the object was replaced, and the booking ends.
- *ended*: terminal phase or deleted. It ends every state; a bind still in flight gets its 404 or 409.
- A claim (`claims`) is not a state of this table: it counts nothing.

Invariant: only ASSUMED can come from a decision of this process alone, and every path out of it is one of finish,
forget, seen bound or ended. A bind without an answer stays ASSUMED until one of them is known.

Source: kube-scheduler's pkg/scheduler/backend/cache/interface.go, with the extender as the binder.
"""

from enum import StrEnum


class PodState(StrEnum):
    """How far a pod's booking is confirmed."""

    ASSUMED = "assumed"
    BOUND = "bound"
    ADDED = "added"


class PodEvent(StrEnum):
    """What was told of a pod."""

    ASSUME = "assume"
    FINISH = "finish"
    FORGET = "forget"
    SEEN_BOUND = "seen bound"
    SEEN_UNBOUND = "seen unbound"
    ENDED = "ended"


#: (state, event) -> the next state; None is "no booking".
TRANSITIONS: dict[tuple[PodState | None, PodEvent], PodState | None] = {
    (None, PodEvent.ASSUME): PodState.ASSUMED,
    (None, PodEvent.FINISH): None,
    (None, PodEvent.FORGET): None,
    (None, PodEvent.SEEN_BOUND): PodState.ADDED,
    (None, PodEvent.SEEN_UNBOUND): None,
    (None, PodEvent.ENDED): None,
    (PodState.ASSUMED, PodEvent.ASSUME): PodState.ASSUMED,
    (PodState.ASSUMED, PodEvent.FINISH): PodState.BOUND,
    (PodState.ASSUMED, PodEvent.FORGET): None,
    (PodState.ASSUMED, PodEvent.SEEN_BOUND): PodState.ADDED,
    (PodState.ASSUMED, PodEvent.SEEN_UNBOUND): PodState.ASSUMED,
    (PodState.ASSUMED, PodEvent.ENDED): None,
    (PodState.BOUND, PodEvent.ASSUME): PodState.ASSUMED,
    (PodState.BOUND, PodEvent.FINISH): PodState.BOUND,
    (PodState.BOUND, PodEvent.FORGET): None,
    (PodState.BOUND, PodEvent.SEEN_BOUND): PodState.ADDED,
    (PodState.BOUND, PodEvent.SEEN_UNBOUND): PodState.BOUND,
    (PodState.BOUND, PodEvent.ENDED): None,
    (PodState.ADDED, PodEvent.ASSUME): PodState.ADDED,
    (PodState.ADDED, PodEvent.FINISH): PodState.ADDED,
    (PodState.ADDED, PodEvent.FORGET): PodState.ADDED,
    (PodState.ADDED, PodEvent.SEEN_BOUND): PodState.ADDED,
    (PodState.ADDED, PodEvent.SEEN_UNBOUND): None,
    (PodState.ADDED, PodEvent.ENDED): None,
}
