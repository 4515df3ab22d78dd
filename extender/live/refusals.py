"""Events on pods that no node takes: one whenever the reason changes.

Why it exists: kube-scheduler's own event is rewritten again and again with other numbers; this one names the most
frequent reason and stays. No answer may wait for it. Invariants: a pod that is refused again for the same reason gets
no further event; after some node took a pod, its next refusal gets an event again; memory is bounded.
"""

from collections import OrderedDict

from accounting.pod import Pod
from accounting.status import Code
from extender.kube.events import EventRecorder, PodRef
from extender.verbs import Decision, wire_text

_REMEMBERED = 10_000
_REASON, _ACTION = "NoNodeTakesGPUs", "Filtering"


class RefusalReporter:
    """Writes the events, and remembers the last reason by pod UID."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._told: OrderedDict[str, str] = OrderedDict()

    def forget(self, uid: str) -> None:
        """Forget a pod that has a node or is gone, so that its next refusal gets an event."""
        self._told.pop(uid, None)

    def note(self, pod: Pod, decision: Decision) -> None:
        """Write an event if an answer of filter gives a new reason."""
        if decision.feasible or not decision.refused:
            self.forget(pod.uid)
            return
        code = decision.refused[0].code
        if self._told.get(pod.uid) == code:
            return
        self._told[pod.uid] = code
        self._told.move_to_end(pod.uid)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        note = wire_text(Code(code))
        self._events.warning(PodRef(pod.namespace, pod.name, pod.uid), _REASON, _ACTION, note)
