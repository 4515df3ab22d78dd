"""Kubernetes objects as plain dictionaries, small enough that a test shows only what it is about.

It exists because the extender is tested from the outside, with manifests and bodies. It must not import the code under
test. Invariant: objects are as an API server would show them: extended resources as text, requests equal to limits.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]
Row = tuple[str, int, int]

COUNT, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PERCENTAGE, CORES = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
REGISTER, CORDON = "hami.io/node-nvidia-register", "hami.io/device-cordon"
ALLOCATION = "hami.io/vgpu-devices-allocated"
MODEL = "NVIDIA A100-SXM4-40GB"
STARTED, FINISHED = "2026-11-29T10:00:00Z", "2026-11-29T10:05:00Z"


def card(uuid: str, index: int = 0, *, memory: int = 1000, slots: int = 10, cores: int = 100, **other: object) -> Json:
    """An entry of a register."""
    entry = {"id": uuid, "index": index, "count": slots, "devmem": memory, "devcore": cores, "type": MODEL, "numa": 0}
    return entry | {"mode": "hami-core", "health": True} | other


def node(
    name: str = "n1",
    cards: int | Sequence[Json] = 1,
    *,
    memory: int = 1000,
    allocatable: str | None = None,
    annotations: Json | None = None,
) -> Json:
    """A node with these cards, or with that many equal ones named GPU-<node>-0, GPU-<node>-1 and so on."""
    if isinstance(cards, int):
        cards = [card(f"GPU-{name}-{index}", index, memory=memory) for index in range(cards)]
    texts = {REGISTER: json.dumps(cards)} if cards else {}
    status: Json = {} if allocatable is None else {"allocatable": {"cpu": "8", COUNT: allocatable}}
    meta = {"name": name, "annotations": texts | (annotations or {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def asks(count: object = "1", memory: object = None, cores: object = None, percentage: object = None) -> Json:
    """A container's resources; None: not asked for."""
    given = {COUNT: count, MEMORY: memory, CORES: cores, PERCENTAGE: percentage}
    quantities = {name: str(value) if isinstance(value, int) else value for name, value in given.items()}
    quantities = {name: value for name, value in quantities.items() if value is not None}
    return {"limits": quantities, "requests": dict(quantities)}


def container(name: str, resources: Json | None = None, **other: object) -> Json:
    """A container, or an ordinary init."""
    return {"name": name, "image": "app:1", "resources": resources or {}} | other


def sidecar(name: str, resources: Json | None = None) -> Json:
    """A native sidecar, to be listed among the init containers."""
    return container(name, resources, restartPolicy="Always")


def pod(
    name: str = "p",
    containers: Sequence[Json] | None = None,
    *,
    inits: Sequence[Json] = (),
    namespace: str = "default",
    uid: str | None = "",
    memory: int = 100,
    node: str | None = None,
    allocation: str | None = None,
    annotations: Json | None = None,
    status: Json | None = None,
) -> Json:
    """A pod, by default with one app that asks for `memory` MiB of one card, and UID uid-<name>; None: no UID."""
    meta: Json = {"name": name, "namespace": namespace}
    if uid is not None:
        meta["uid"] = uid or f"uid-{name}"
    texts = dict(annotations or {}) | ({} if allocation is None else {ALLOCATION: allocation})
    if texts:
        meta["annotations"] = texts
    spec: Json = {"containers": [container("main", asks(1, memory))] if containers is None else list(containers)}
    if inits:
        spec["initContainers"] = list(inits)
    if node is not None:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status or {"phase": "Pending"}}


def rows(*containers: Iterable[Row]) -> str:
    """An allocation annotation: (uuid, memory, cores) per card, one sequence per container."""
    return "".join("".join(f"{uuid},NVIDIA,{mib},{cores}:" for uuid, mib, cores in each) + ";" for each in containers)


def bound(name: str, node: str, uuid: str, memory: int = 100, *, cores: int = 0, **other: Any) -> Json:  # noqa: ANN401 - any argument of `pod`
    """A running pod whose one app holds a share of one card."""
    app = container("main", asks(1, memory, cores or None))
    status = {"phase": "Running"}
    return pod(name, [app], node=node, allocation=rows([(uuid, memory, cores)]), status=status, **other)


def terminated(
    name: str, *, exit_code: int = 0, started: str | None = STARTED, finished: str | None = FINISHED
) -> Json:
    """The status of an init that has ended."""
    times = {"startedAt": started, "finishedAt": finished}
    state = {"exitCode": exit_code} | {key: time for key, time in times.items() if time is not None}
    return {"name": name, "ready": True, "state": {"terminated": state}}


def running(name: str) -> Json:
    """The status of a container that runs."""
    return {"name": name, "state": {"running": {"startedAt": STARTED}}}


def status_of(phase: str, *inits: Json, **other: object) -> Json:
    """A pod's status."""
    return {"phase": phase, "initContainerStatuses": list(inits)} | other


def quota(hard: Json, namespace: str = "default", name: str = "gpus", **spec: object) -> Json:
    """A ResourceQuota."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard} | spec}


def listed(*objects: Json) -> str:
    """A List as `kubectl get -o json` writes it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def held(slots: int, memory: int, cores: int = 0) -> Json:
    """Return what is held of one card, as the lists show it."""
    return {"slots": slots, "memory": memory, "cores": cores}


#: A pod's statuses while its init runs, and once it is over; see `phased`.
STARTING = status_of("Pending", running("side"), running("init"))
STEADY = status_of("Running", running("side"), terminated("init"))


def phased(status: Json | None = None, **other: Any) -> Json:  # noqa: ANN401 - any argument of `pod`
    """A bound pod with sidecar 2, init 20 and app 10 on GPU-n1-0: it holds 22 at its peak, then 12."""
    inits = [sidecar("side", asks(1, 2)), container("init", asks(1, 20))]
    share = rows(*([("GPU-n1-0", memory, 0)] for memory in (2, 20, 10)))
    given: Json = {"inits": inits, "node": "n1", "allocation": share, "status": status}
    return pod("p", [container("main", asks(1, 10))], **(given | other))
