"""The status that a kubelet reports for a pod whose containers are in given states.

It exists so that tests say "the init ended with 0" and get the statuses, conditions and phase that go with it. It must
do no I/O. Invariant: the result depends on the pod and the states alone; a container that runs again has its restart
counted and its end kept as lastState.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.apiserver.resources import Json


class Waiting(NamedTuple):
    """Not started, or between two starts."""

    reason: str = "PodInitializing"


class Running(NamedTuple):
    """Running since then."""

    started_at: str


class Terminated(NamedTuple):
    """Ended."""

    exit_code: int
    started_at: str
    finished_at: str


State = Waiting | Running | Terminated


def status_of(pod: Json, states: Mapping[str, State], now: str) -> Json:
    """Return the new status. Containers that `states` does not name stay as they are; those never named wait."""
    spec, old = pod["spec"], pod.get("status", {})
    inits = _statuses(spec.get("initContainers") or [], old.get("initContainerStatuses") or [], states)
    apps = _statuses(spec["containers"], old.get("containerStatuses") or [], states)
    initialized = all(_init_is_over(one, status) for one, status in _paired(spec.get("initContainers") or [], inits))
    sidecars = [status for one, status in _paired(spec.get("initContainers") or [], inits) if is_sidecar(one)]
    ready = initialized and all("running" in status["state"] for status in [*sidecars, *apps])
    return {
        "phase": _phase(spec.get("restartPolicy", "Always"), inits, apps, sidecars, initialized=initialized),
        "startTime": old.get("startTime", now),
        "conditions": _conditions(old, {"Initialized": initialized, "ContainersReady": ready, "Ready": ready}, now),
        "initContainerStatuses": inits,
        "containerStatuses": apps,
    }


def is_sidecar(container: Json) -> bool:
    """Whether an entry of spec.initContainers keeps running."""
    return container.get("restartPolicy") == "Always"


def state_in(status: Json, container: str) -> Json:
    """Return the state of a container in a status; {} if it has none."""
    for one in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        if one["name"] == container:
            state: Json = one["state"]
            return state
    return {}


def _statuses(containers: list[Json], old: list[Json], states: Mapping[str, State]) -> list[Json]:
    known = {status["name"]: status for status in old}
    return [_status(one, known.get(one["name"]), states.get(one["name"])) for one in containers]


def _status(container: Json, old: Json | None, state: State | None) -> Json:
    if state is None and old is not None:
        return old
    new = _state(state or Waiting())
    last, count = (old or {}).get("lastState", {}), (old or {}).get("restartCount", 0)
    ended = (old or {}).get("state", {}).get("terminated")
    if ended and "terminated" not in new:
        last, count = {"terminated": ended}, count + 1
    running = "running" in new
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": running or new.get("terminated", {}).get("exitCode") == 0,
        "started": running,
        "restartCount": count,
        "state": new,
        "lastState": last,
    }


def _state(state: State) -> Json:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason}}
    if isinstance(state, Running):
        return {"running": {"startedAt": state.started_at}}
    reason = "Error" if state.exit_code else "Completed"
    times = {"startedAt": state.started_at, "finishedAt": state.finished_at}
    return {"terminated": {"exitCode": state.exit_code, "reason": reason, **times}}


def _init_is_over(container: Json, status: Json) -> bool:
    if is_sidecar(container):
        return "waiting" not in status["state"]
    return status["state"].get("terminated", {}).get("exitCode") == 0


def _phase(policy: str, inits: list[Json], apps: list[Json], sidecars: list[Json], *, initialized: bool) -> str:
    codes = [status["state"].get("terminated", {}).get("exitCode") for status in apps]
    # As in the kubelet's getPhase, a pod with a running sidecar has not ended, and a sidecar's exit code does not
    # count.
    ended = all(code is not None for code in codes) and not any("running" in one["state"] for one in sidecars)
    if policy != "Always" and ended:
        if not any(codes):
            return "Succeeded"
        if policy == "Never":
            return "Failed"
    failed = [one for one in inits if one not in sidecars and one["state"].get("terminated", {}).get("exitCode", 0)]
    if failed and policy == "Never":
        return "Failed"
    started = any("running" in status["state"] or "terminated" in status["state"] for status in apps)
    return "Running" if initialized and started else "Pending"


def _conditions(old: Json, truths: Mapping[str, bool], now: str) -> list[Json]:
    before: list[Json] = old.get("conditions") or []
    kept = [condition for condition in before if condition["type"] not in truths]
    for kind, truth in truths.items():
        status = "True" if truth else "False"
        same: Any = next((one for one in before if one["type"] == kind and one["status"] == status), None)
        kept.append(same or {"type": kind, "status": status, "lastTransitionTime": now})
    return kept


def _paired(containers: list[Json], statuses: list[Json]) -> Iterator[tuple[Json, Json]]:
    yield from zip(containers, statuses, strict=True)
