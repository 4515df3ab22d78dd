"""Events on pods that no node takes: one when the reason changes.

Why it exists: kube-scheduler's own event is written again and again with other numbers; this one says the one thing
that is in the way most, and stays. It must not be waited for. Invariants: a pod that is refused again for the same
reason gets no further event; a pod that some node took begins anew; memory is bounded.
"""

from collections import OrderedDict

from accounting.pod import Pod
from accounting.status import Code
from extender.kube.events import EventRecorder, PodRef
from extender.verbs import Decision, wire_text

_REMEMBERED = 10_000
_REASON, _ACTION = "NoNodeTakesGPUs", "Filtering"


class RefusalReporter:
    """The reason that was told last, by pod UID."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._told: OrderedDict[str, str] = OrderedDict()

    def forget(self, uid: str) -> None:
        """A pod has a node, or is gone: the next refusal is told again."""
        self._told.pop(uid, None)

    def note(self, pod: Pod, decision: Decision) -> None:
        """Look at an answer of filter."""
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
