"""Draws the pods of a synthetic cluster and writes them as Kubernetes objects.

It exists so that benchmarks meet the pods of a busy cluster: inits, sidecars, several cards, every state.
It must not know which cards have room: it says what a pod needs and is told the cards that the pod got.
Invariant: the allocation annotation has one row per container, in spec order, with the numbers of `Plan.row`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final, Literal, NamedTuple

import orjson

Kind = Literal["init", "sidecar", "app"]
State = Literal["running", "initializing", "crashing", "creating", "succeeded", "failed"]
Object = dict[str, Any]

WHOLE: Final = 100
DAY_SECONDS: Final = 86_400
NOW_SECONDS: Final = 1_767_225_600  # a fixed moment, so that the same arguments give the same bytes
NAMESPACES: Final = ("ads", "batch", "chat", "fraud", "maps", "search", "speech", "vision")
TERMINAL: Final = frozenset({"succeeded", "failed"})
_PENDING: Final = frozenset({"initializing", "crashing", "creating"})


class Use(NamedTuple):
    """Slots, MiB, and cores in percent."""

    slots: int
    memory_mib: int
    cores: int


class Plan(NamedTuple):
    """One container. A role is the number of one of the pod's cards, before the real card is known."""

    kind: Kind
    name: str
    roles: tuple[int, ...]
    sixteenths: int = 0  # of a card, asked for in MiB; 0: the percentage counts
    percent: int = 0
    cores: int = 0

    def row(self, card_mib: int) -> Use:
        """Return what the container uses on each of its cards; MiB in whole hundreds, as people ask for them."""
        if self.sixteenths:
            return Use(1, card_mib * self.sixteenths // 1600 * 100, self.cores)
        return Use(1, card_mib * self.percent // 100, self.cores)


class Need(NamedTuple):
    """What a card must offer. `unused`: by an exclusive row; `spare_core`: by a row with cores 0."""

    use: Use
    unused: bool
    spare_core: bool


class Pod(NamedTuple):
    """A pod that is drawn but not yet placed."""

    namespace: str
    plans: tuple[Plan, ...]
    state: State


class Place(NamedTuple):
    """Where a pod runs. `uuids[role]` is the card of that role."""

    node: str
    card_mib: int
    uuids: tuple[str, ...]


_WARM_UP: Final = Plan("init", "warm-up", (0,))
_ELSEWHERE: Final = Plan("init", "warm-up", (1,))
_CONVERT: Final = Plan("init", "convert", (0,))
_COMPILE: Final = Plan("init", "compile", (0,), percent=50, cores=WHOLE)
_FETCH: Final = Plan("init", "fetch-weights", ())
_CACHE: Final = Plan("sidecar", "feature-cache", (0,))
_TRACE: Final = Plan("sidecar", "trace-agent", (0,))
_SERVER: Final = Plan("app", "server", (0,))
_DECODER: Final = Plan("app", "decoder", (0,))
_RANKER: Final = Plan("app", "ranker", (1,))
_PAIR: Final = Plan("app", "trainer", (0, 1))
_TRAINER: Final = Plan("app", "trainer", (0,), percent=WHOLE, cores=WHOLE)
_METRICS: Final = Plan("app", "metrics", ())
_SHAPES: Final[dict[tuple[Plan, ...], int]] = {
    (_SERVER,): 26,
    (_CACHE, _SERVER): 15,
    (_WARM_UP, _SERVER): 10,
    (_WARM_UP, _CACHE, _SERVER): 9,
    (_CACHE, _WARM_UP, _SERVER): 6,
    (_CACHE, _WARM_UP, _TRACE, _CONVERT, _SERVER): 3,
    (_ELSEWHERE, _SERVER): 3,
    (_FETCH, _WARM_UP, _SERVER): 4,
    (_FETCH, _CACHE, _SERVER, _METRICS): 3,
    (_SERVER, _DECODER): 6,
    (_SERVER, _RANKER): 3,
    (_SERVER, _DECODER, _RANKER): 2,
    (_SERVER, _METRICS): 2,
    (_PAIR,): 3,
    (_WARM_UP, _CACHE, _PAIR): 2,
    (_TRAINER,): 2,
    (_COMPILE, _SERVER): 1,
}
_STATES: Final[dict[State, int]] = {
    "running": 74,
    "initializing": 12,
    "crashing": 2,
    "creating": 3,
    "succeeded": 7,
    "failed": 2,
}
_SIXTEENTHS: Final[dict[Kind, tuple[int, ...]]] = {
    "init": (1, 2, 4, 4, 6, 8, 12),
    "sidecar": (1, 1, 2),
    "app": (1, 1, 2, 2, 3, 4, 4, 6, 8),
}
_PERCENTS: Final[dict[Kind, tuple[int, ...]]] = {"init": (10, 25, 60), "sidecar": (5, 10), "app": (10, 20, 25, 50)}
_CORES: Final = (0, 0, 0, 0, 10, 10, 30)
_ASKS_PERCENT: Final = 0.12

SMALLEST: Final = (_SERVER._replace(sixteenths=1),)


def with_containers(plans: tuple[Plan, ...], least: int) -> tuple[Plan, ...]:
    """Return the plans with enough more apps to have `least`; each takes a little of the pod's first card.

    Beside an exclusive row they take nothing.
    """
    roles: tuple[int, ...] = () if any(plan.cores == WHOLE for plan in plans) else (0,)
    more = (Plan("app", f"helper-{number}", roles, sixteenths=1, cores=1) for number in range(len(plans), least))
    # The last one gives the pod its name.
    return (*plans[:-1], *more, plans[-1])


def draw_pod(rng: Random) -> Pod:
    """Draw a pod that has no place yet."""
    shape = rng.choices(tuple(_SHAPES), tuple(_SHAPES.values()))[0]
    state = rng.choices(tuple(_STATES), tuple(_STATES.values()))[0]
    if state in ("initializing", "crashing") and all(plan.kind != "init" for plan in shape):
        state = "running"
    plans = tuple(_sized(rng, plan, beside_exclusive=_COMPILE in shape) for plan in shape)
    return Pod(rng.choice(NAMESPACES), plans, state)


def _sized(rng: Random, plan: Plan, *, beside_exclusive: bool) -> Plan:
    if not plan.roles or plan.cores == WHOLE:
        return plan
    # An app with cores 0 would find no core left beside the pod's own exclusive init.
    cores = 30 if beside_exclusive else rng.choice(_CORES)
    if rng.random() < _ASKS_PERCENT:
        return plan._replace(percent=rng.choice(_PERCENTS[plan.kind]), cores=cores)
    return plan._replace(sixteenths=rng.choice(_SIXTEENTHS[plan.kind]), cores=cores)


def peak(rows: Iterable[tuple[Kind, Use]]) -> Use:
    """Return the most that rows in spec order hold at one time, each number by itself."""
    highest = sidecars = apps = Use(0, 0, 0)
    for kind, row in rows:
        if kind == "app":
            apps = add(apps, row)
        elif kind == "sidecar":
            sidecars = add(sidecars, row)
        else:
            highest = _max(highest, add(sidecars, row))
    return _max(highest, add(sidecars, apps))


def add(a: Use, b: Use) -> Use:
    return Use(a[0] + b[0], a[1] + b[1], a[2] + b[2])


def _max(a: Use, b: Use) -> Use:
    return Use(max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))


def needs(plans: Sequence[Plan], card_mib: int) -> list[Need]:
    """Return what the card of each role must offer."""
    rows = [(plan, plan.row(card_mib)) for plan in plans]
    found = []
    for role in range(1 + max(max(plan.roles, default=0) for plan in plans)):
        mine = [(plan.kind, row) for plan, row in rows if role in plan.roles]
        cores = {row.cores for _, row in mine}
        found.append(Need(peak(mine), unused=WHOLE in cores, spare_core=0 in cores))
    return found


def total_peak(plans: Sequence[Plan], card_mib: int) -> Use:
    """Return the pod's total, regardless of cards: count, MiB and cores."""
    rows = ((plan.kind, len(plan.roles), plan.row(card_mib)) for plan in plans)
    return peak((kind, Use(count, count * row.memory_mib, count * row.cores)) for kind, count, row in rows)


def uuid4(rng: Random) -> str:
    text = f"{rng.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def timestamp(seconds: int) -> str:
    """Return seconds since the epoch as the API server writes them."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def quantity(value: int) -> str:
    """Return an integer in the API server's canonical form: 3000 is `3k`, 2048 stays."""
    for suffix in ("", "k", "M", "G", "T"):
        if value == 0 or value % 1000:
            return f"{value}{suffix}"
        value //= 1000
    return f"{value}P"


def pod_object(rng: Random, pod: Pod, place: Place, number: int) -> Object:
    """Return the whole Pod; `number` makes its name unique."""
    recent = pod.state in _PENDING
    age_seconds = rng.randrange(300, 900) if recent else rng.randrange(2 * DAY_SECONDS, 30 * DAY_SECONDS)
    created = NOW_SECONDS - age_seconds
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(rng, pod, place, number, created),
        "spec": _spec(pod, place),
        "status": _status(rng, pod, number, created),
    }


def pad(pod: Object, least_bytes: int) -> Object:
    """Return the pod with managedFields, which make real ones large, until its JSON has that many bytes."""
    managers: list[Object] = []
    missing = least_bytes - len(orjson.dumps(pod))
    while missing > 0:
        manager = _manager(len(managers))
        managers.append(manager)
        missing -= len(orjson.dumps(manager)) + 1
    return pod | {"metadata": pod["metadata"] | {"managedFields": managers}} if managers else pod


def _manager(number: int) -> Object:
    """Return the fields of one writer: small objects in small objects."""
    owned: Object = {f'k:{{"type":"Condition{one}"}}': {".": {}, "f:status": {}, "f:type": {}} for one in range(6)}
    return {
        "manager": f"controller-{number}",
        "operation": "Update",
        "apiVersion": "v1",
        "time": timestamp(NOW_SECONDS),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": owned, "f:phase": {}, "f:startTime": {}}},
        "subresource": "status",
    }


def _metadata(rng: Random, pod: Pod, place: Place, number: int, created: int) -> Object:
    app = f"{pod.namespace}-{pod.plans[-1].name}"
    revision = f"{rng.getrandbits(36):09x}"
    group, owner = ("batch", "Job") if pod.state in TERMINAL else ("apps", "ReplicaSet")
    return {
        "name": f"{app}-{revision}-{number:06d}",
        "namespace": pod.namespace,
        "uid": uuid4(rng),
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": timestamp(created),
        "labels": {"app": app, "pod-template-hash": revision, "hami.io/vgpu-node": place.node},
        "annotations": _annotations(pod.plans, place, created),
        "ownerReferences": [
            {
                "apiVersion": f"{group}/v1",
                "kind": owner,
                "name": f"{app}-{revision}",
                "uid": uuid4(rng),
                "controller": True,
            }
        ],
    }


def _annotations(plans: Sequence[Plan], place: Place, created: int) -> dict[str, str]:
    rows = [_row_text(plan, place) for plan in plans]
    # The device plugin adds one `;` each time it takes a row.
    taken = ";" * (len(rows) + sum(1 for row in rows if row))
    return {
        "hami.io/bind-phase": "success",
        "hami.io/bind-time": str(created + 1),
        "hami.io/vgpu-devices-allocated": "".join(f"{row};" for row in rows),
        "hami.io/vgpu-devices-to-allocate": taken,
        "hami.io/vgpu-node": place.node,
        "hami.io/vgpu-time": str(created + 1),
    }


def _row_text(plan: Plan, place: Place) -> str:
    _, memory_mib, cores = plan.row(place.card_mib)
    return "".join(f"{place.uuids[role]},NVIDIA,{memory_mib},{cores}:" for role in plan.roles)


def _spec(pod: Pod, place: Place) -> Object:
    containers = [(plan.kind, _container(plan, place.card_mib)) for plan in pod.plans]
    not_ready = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
    spec: Object = {
        "containers": [container for kind, container in containers if kind == "app"],
        "nodeName": place.node,
        "priority": 100 * NAMESPACES.index(pod.namespace),
        "restartPolicy": "Never" if pod.state in TERMINAL else "Always",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            not_ready | {"tolerationSeconds": 300},
        ],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": f"{pod.namespace}-models"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        ],
    }
    inits = [container for kind, container in containers if kind != "app"]
    return spec | {"initContainers": inits} if inits else spec


def _container(plan: Plan, card_mib: int) -> Object:
    resources = _resources(plan, card_mib)
    container: Object = {
        "name": plan.name,
        "image": _image(plan),
        "env": [{"name": "MODEL_DIR", "value": "/models"}],
        "resources": {"limits": resources, "requests": dict(resources)},
        "volumeMounts": [
            {"name": "models", "mountPath": "/models", "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    return container | {"restartPolicy": "Always"} if plan.kind == "sidecar" else container


def _image(plan: Plan) -> str:
    return f"ml/{plan.name}:2.4.1"


def _resources(plan: Plan, card_mib: int) -> dict[str, str]:
    count = len(plan.roles)
    if not count:
        return {"cpu": "100m", "memory": "128Mi"}
    limits = {"cpu": str(count), "memory": f"{4 * count}Gi", "nvidia.com/gpu": str(count)}
    if plan.sixteenths:
        limits["nvidia.com/gpumem"] = quantity(plan.row(card_mib).memory_mib)
    elif plan.percent < WHOLE:  # with neither, the container gets the whole memory
        limits["nvidia.com/gpumem-percentage"] = str(plan.percent)
    return limits | {"nvidia.com/gpucores": str(plan.cores)} if plan.cores else limits


def _status(rng: Random, pod: Pod, number: int, created: int) -> Object:
    started = timestamp(created + 1)
    conditions = {
        "PodScheduled": "True",
        "Initialized": str(pod.state not in _PENDING),
        "Ready": str(pod.state == "running"),
    }
    statuses = _container_statuses(rng, pod, created + 3)
    apps = sum(1 for plan in pod.plans if plan.kind == "app")
    status: Object = {
        "phase": "Pending" if pod.state in _PENDING else pod.state.capitalize(),
        "startTime": started,
        "podIP": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        "qosClass": "Guaranteed",
        "conditions": [{"type": t, "status": s, "lastTransitionTime": started} for t, s in conditions.items()],
        "containerStatuses": sorted(statuses[-apps:], key=lambda one: str(one["name"])),
    }
    return status | {"initContainerStatuses": statuses[:-apps]} if statuses[:-apps] else status


def _container_statuses(rng: Random, pod: Pod, seconds: int) -> list[Object]:
    """Return the statuses in spec order, of a kubelet that has got as far as container `reached`."""
    reached = len(pod.plans)
    if pod.state == "creating":
        reached = -1
    elif pod.state in _PENDING:
        reached = rng.choice([index for index, plan in enumerate(pod.plans) if plan.kind == "init"])
    reason = "ContainerCreating" if pod.plans[0].kind == "app" else "PodInitializing"
    statuses = []
    for index, plan in enumerate(pod.plans):
        lasts = rng.randrange(5, 60) if plan.kind == "init" else rng.randrange(3600, DAY_SECONDS)
        if index > reached:
            statuses.append(_container_status(rng, plan, {"waiting": {"reason": reason}}))
        elif index == reached and pod.state == "crashing":
            ended = _terminated(1, seconds, lasts)
            statuses.append(_container_status(rng, plan, {"waiting": {"reason": "CrashLoopBackOff"}}, ended))
        elif index < reached and (plan.kind == "init" or pod.state in TERMINAL):
            exit_code = int(plan.kind == "app" and pod.state == "failed")
            statuses.append(_container_status(rng, plan, _terminated(exit_code, seconds, lasts)))
        else:
            statuses.append(_container_status(rng, plan, {"running": {"startedAt": timestamp(seconds)}}))
        seconds += lasts + 1 if plan.kind == "init" else 1
    return statuses


def _terminated(exit_code: int, seconds: int, lasts: int) -> Object:
    reason = "Error" if exit_code else "Completed"
    times = {"startedAt": timestamp(seconds), "finishedAt": timestamp(seconds + lasts)}
    return {"terminated": {"exitCode": exit_code, "reason": reason} | times}


def _container_status(rng: Random, plan: Plan, state: Object, last: Object | None = None) -> Object:
    seen = "waiting" not in state or last is not None
    running = "running" in state
    done = plan.kind == "init" and "terminated" in state
    status: Object = {
        "name": plan.name,
        "image": _image(plan),
        "imageID": _image(plan) if seen else "",
        "ready": done or (running and plan.kind != "init"),
        "started": running,
        "restartCount": 0 if last is None else 3,
        "state": state,
    }
    if last is not None:
        status["lastState"] = last
    return status | {"containerID": f"containerd://{rng.getrandbits(256):064x}"} if seen else status
