"""Whether a pod fits on a node now, and on which cards: the decision of bind, repeated by a replay.

It must not book anything or do I/O. Invariant: the same state gives the same cards, or the same text.
"""

from accounting.answers import Placement
from accounting.pod import Pod
from accounting.status import Code
from extender.cluster import Cluster
from extender.verbs.texts import wire_text


def placed(cluster: Cluster, pod: Pod, node: str) -> Placement | str:
    """Return the cards that the pod would get on the node now, or why it gets none, in filter's words."""
    if pod.concerned and node not in cluster.cache.nodes:
        return wire_text(Code.NODE_UNKNOWN)
    outcome = cluster.placed(pod, node)
    return outcome if isinstance(outcome, Placement) else wire_text(outcome[0].code)
