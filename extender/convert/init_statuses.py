"""Whether a pod's ordinary inits are over, by its status.

It must not do I/O. Invariant: the answer is that of `accounting.lifecycle.inits_over` for the statuses as written; a
missing or unreadable status means that the init is not over.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from accounting.lifecycle import InitStatus, inits_over
from extender.wire import core_v1, watched

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Digits of a second below microseconds, where Python's times end.
_BELOW_MICROSECONDS = re.compile(r"[.,][0-9]{6}([0-9]{1,3})")


def are_inits_over(spec: watched.AnyPodSpec, status: core_v1.PodStatus) -> bool:
    """Return whether the inits of a pod are over now."""
    inits = [each.name for each in spec.initContainers or () if each.restartPolicy != "Always"]
    if not inits:
        return True
    states = {each.name: each.state for each in status.initContainerStatuses or ()}
    for name in inits:
        # One init that has not succeeded decides, whatever the others say.
        if not _succeeded(states.get(name)):
            return False
    return inits_over(
        [_init_status(states.get(name), timed=len(inits) > 1) for name in inits],
        all_containers_restarting=_are_restarting(status),
        restart_rule=_may_restart(spec.initContainers or ()) or _may_restart(spec.containers or ()),
    )


def _are_restarting(status: core_v1.PodStatus) -> bool:
    for condition in status.conditions or ():
        if condition.type == "AllContainersRestarting" and condition.status == "True":
            return True
    return False


def _may_restart(containers: Iterable[watched.AnyContainer]) -> bool:
    """Whether some container has a rule that may restart all containers of the pod."""
    for each in containers:
        if each.restartPolicyRules and any(rule.action == "RestartAllContainers" for rule in each.restartPolicyRules):
            return True
    return False


def _succeeded(state: core_v1.ContainerState | None) -> bool:
    terminated = None if state is None else state.terminated
    return terminated is not None and not terminated.exitCode


def _init_status(state: core_v1.ContainerState | None, *, timed: bool) -> InitStatus:
    """Return the status of an init that has succeeded; its times matter only in comparison with another init's."""
    terminated = None if state is None else state.terminated
    if terminated is None or not timed:
        return InitStatus(succeeded=terminated is not None)
    return InitStatus(
        succeeded=True,
        started_at_ns=_nanoseconds(terminated.startedAt),
        finished_at_ns=_nanoseconds(terminated.finishedAt),
    )


def _nanoseconds(text: str | None) -> int | None:
    """Return an RFC 3339 time in nanoseconds since 1970; None if it is missing or not a time."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    delta = moment - _EPOCH
    below = _BELOW_MICROSECONDS.search(text)
    nanoseconds = int(below[1].ljust(3, "0")) if below else 0
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1_000 + nanoseconds
