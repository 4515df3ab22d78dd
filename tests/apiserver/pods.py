"""What the API server itself does to a Pod: defaults at creation, the first status, and binding.

It exists because clients read these fields back: requests that came from limits, the PodScheduled condition, the
annotations of a Binding. It must not store anything, nor check who may write. Invariant: a function changes only the
pod that it is given, and takes the time as text.
"""

from typing import Any

from tests.apiserver.resources import Json

_GRACE_SECONDS = 30
_COMPUTE = ("cpu", "memory")


def complete_new_pod(pod: Json, now: str) -> None:
    """Add generation, the first status, and those of the real server's defaults that schedulers read."""
    pod["metadata"]["generation"] = 1
    spec = pod.setdefault("spec", {})
    for key, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", _GRACE_SECONDS),
        ("dnsPolicy", "ClusterFirst"),
        ("securityContext", {}),
        ("schedulerName", "default-scheduler"),
        ("priority", 0),
        ("enableServiceLinks", True),
        ("preemptionPolicy", "PreemptLowerPriority"),
    ):
        spec.setdefault(key, value)
    for container in _containers(spec):
        _default_requests(container.setdefault("resources", {}))
    pod["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        pod["status"]["conditions"] = [condition]


def binding_obstacle(pod: Json) -> str | None:
    """Return why a pod cannot be bound, in the words of the 409."""
    name, spec = pod["metadata"]["name"], pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return None


def bind(pod: Json, binding: Json, now: str) -> None:
    """Assign the pod. Keys of the Binding win; neither they nor the node are checked, as in the real server."""
    given = binding["metadata"]
    for kind in ("annotations", "labels"):
        if given.get(kind):
            pod["metadata"][kind] = (pod["metadata"].get(kind) or {}) | given[kind]
    pod["spec"]["nodeName"] = binding["target"]["name"]
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = status.setdefault("conditions", [])
    for position, condition in enumerate(conditions):
        if condition.get("type") == "PodScheduled":
            conditions[position] = scheduled
            return
    conditions.append(scheduled)


def grace_seconds(pod: Json, asked: int | None) -> int:
    """Return how long a pod that is deleted now may stay."""
    if not pod["spec"].get("nodeName") or pod.get("status", {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    period = int(pod["spec"].get("terminationGracePeriodSeconds") or 0) if asked is None else asked
    return 1 if period < 0 else period


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _default_requests(resources: Json) -> None:
    limits = resources.get("limits")
    if limits:
        resources["requests"] = limits | (resources.get("requests") or {})


def _qos_class(spec: Json) -> str:
    everything: list[dict[str, Any]] = [container.get("resources") or {} for container in _containers(spec)]
    if not any(
        name in (one.get(kind) or {}) for one in everything for kind in ("limits", "requests") for name in _COMPUTE
    ):
        return "BestEffort"
    guaranteed = all(
        (one.get("limits") or {}).get(name) is not None
        and (one.get("limits") or {}).get(name) == (one.get("requests") or {}).get(name)
        for one in everything
        for name in _COMPUTE
    )
    return "Guaranteed" if guaranteed else "Burstable"
