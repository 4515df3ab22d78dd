"""When the ordinary inits of a pod are over.

Why it exists: if the step from peak to steady is read wrongly, a card that is in use is given away.
It must not know the wire; it sees one small status per ordinary init. Invariant: the answer depends on the statuses
as they are now and on nothing seen before, so a restart changes nothing. Source: KEP-753 and KEP-5532 for what the
kubelet shows; a sandbox that is rebuilt re-runs the inits from the first one while later ones still show their old
"terminated, exit code 0"; the order of times reveals that. Known limit: for restartPolicy OnFailure the kubelet
does not publish that a finished init runs again.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class InitStatus(NamedTuple):
    """What the pod's status says of one ordinary init, now. Times are nanoseconds since 1970, None when missing."""

    succeeded: bool
    """state.terminated with exit code 0. False also if there is no status."""
    started_at_ns: int | None = None
    finished_at_ns: int | None = None


def inits_over(
    inits: Sequence[InitStatus], *, all_containers_restarting: bool = False, restart_rule: bool = False
) -> bool:
    """Tell whether a pod is past its ordinary inits.

    `inits` has one entry per ordinary init, in spec order; sidecars have none. `all_containers_restarting`: the pod
    condition of that name is True. `restart_rule`: some container carries a RestartAllContainers rule, so that the
    inits may run again at any time and the pod stays at its peak.
    """
    if not inits:
        return True
    if restart_rule or all_containers_restarting or not all(status.succeeded for status in inits):
        return False
    return not any(
        earlier.finished_at_ns is not None
        and later.started_at_ns is not None
        # A later init cannot have started before the one ahead of it finished, unless that one ran again.
        and later.started_at_ns < earlier.finished_at_ns
        for earlier, later in pairwise(inits)
    )
