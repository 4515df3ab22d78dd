"""What people are told of a preemption: events on both sides, and the log.

It must not decide anything. Invariant: whoever is evicted can read for whom, and whoever it was for can read who went.
"""

from accounting.answers.preemption import NodePod, Victims
from accounting.pod import Pod
from extender.kube.events import EventRecorder, PodRef
from extender.logs import logger

_ACTION = "Preempting"
#: Victims that are named in one event; its text is limited.
_NAMED = 10


class Teller:
    """Tells."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def begun(self, pod: Pod, node: str, victims: Victims) -> None:
        """Others are about to go for a pod."""
        cost = victims.cost
        note = (
            f"{cost.number} of lower priority are evicted on node {node}, which frees {cost.memory} MiB, "
            f"{cost.cores} % of cores and {cost.slots} slots: {_named(victims.pods)}"
        )
        self._events.normal(_ref(pod), "Preempting", _ACTION, note)
        logger().info("preemption begins", pod=pod.key, node=node, victims=[each.record.key for each in victims.pods])

    def evicted(self, victim: NodePod, pod: Pod, node: str) -> None:
        """A victim's eviction was accepted."""
        uses = victim.record.held
        freed = f"{sum(use.memory for use in uses)} MiB and {sum(use.cores for use in uses)} % of cores"
        note = (
            f"evicted on node {node} for pod {pod.key} of priority {pod.info.priority}, "
            f"above its own {victim.priority}; frees {freed}"
        )
        record = victim.record
        self._events.normal(PodRef(record.namespace, record.name, record.uid), "Preempted", _ACTION, note)
        logger().info("pod evicted", pod=record.key, node=node, preemptor=pod.key)

    def given_up(self, pod: Pod, node: str, why: str) -> None:
        """A preemption has not helped."""
        note = f"evicting others on node {node} has not helped: {why}; it is tried again later"
        self._events.warning(_ref(pod), "PreemptionGivenUp", _ACTION, note)
        logger().warning("preemption given up", pod=pod.key, node=node, why=why)


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)


def _named(pods: tuple[NodePod, ...]) -> str:
    names = ", ".join(f"{each.record.key} (priority {each.priority})" for each in pods[:_NAMED])
    return names if len(pods) <= _NAMED else f"{names} and {len(pods) - _NAMED} more"
