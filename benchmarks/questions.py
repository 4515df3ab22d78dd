"""The bodies that kube-scheduler would send, and the changes of state between them.

It exists so that every measured question is new: a new pod, the nodes in a new order, a state that has just changed.
It must not send anything. Invariant: a body has the keys, their order and the defaults that kube-scheduler 1.36 sends;
the same seed gives the same bodies.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from benchmarks.synthetic_pods import uuid4

Json = dict[str, Any]

#: So much smaller than any card that its place decides nothing.
_CHANGE_MIB: Final = 16
NAMESPACE: Final = "vision"
#: Far more questions than any memory of earlier ones holds.
_DEMANDS: Final = 1000


class Ask(NamedTuple):
    """One container's request."""

    kind: str
    name: str
    cards: int
    memory_mib: int
    cores: int
    percent: int = 0

    def limits(self) -> dict[str, str]:
        limits = {"nvidia.com/gpu": str(self.cards)}
        if self.cores:
            limits["nvidia.com/gpucores"] = str(self.cores)
        if self.percent:
            return limits | {"nvidia.com/gpumem-percentage": str(self.percent)}
        return limits | {"nvidia.com/gpumem": str(self.memory_mib)}


Asks = tuple[Ask, ...]

#: Fits most nodes, but no card of the two smallest models.
INIT_SIDECAR_APP: Final[Asks] = (
    Ask("init", "warm-up", 1, 22_000, 10),
    Ask("sidecar", "cache", 1, 2_000, 0),
    Ask("app", "server", 1, 12_000, 10),
)
TOO_LARGE: Final[Asks] = (
    Ask("init", "warm-up", 1, 600_000, 10),
    Ask("sidecar", "cache", 1, 1000, 0),
    Ask("app", "server", 1, 300_000, 10),
)
#: On eight unused cards the first two, one after another, take one half of each card, and the third finds no whole one.
#: Both halves of four cards would leave it the other four.
GREEDY_FAILS: Final[Asks] = (
    Ask("app", "left", 4, 0, 0, percent=50),
    Ask("app", "right", 4, 0, 0, percent=50),
    Ask("app", "whole", 4, 0, 0, percent=100),
)


def pod_object(name: str, uid: str, asks: Sequence[Ask], namespace: str = NAMESPACE) -> Json:
    """A pending Pod as the API server defaults it and the informer hands it out."""
    inits = [_container(ask) for ask in asks if ask.kind != "app"]
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": "75",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            **({"initContainers": inits} if inits else {}),
            "containers": [_container(ask) for ask in asks if ask.kind == "app"],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def _container(ask: Ask) -> Json:
    limits = ask.limits()
    return {
        "name": ask.name,
        "image": "registry.local/app:1",
        "resources": {"limits": limits, "requests": {"cpu": "50m", **limits}},
        **({"restartPolicy": "Always"} if ask.kind == "sidecar" else {}),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


class Question(NamedTuple):
    """One pod and the nodes that it may go to, in the order of this attempt."""

    pod: bytes
    names: tuple[str, ...]

    def body(self, names: Sequence[str] | None = None) -> bytes:
        """Return the ExtenderArgs of filter, or, with the names that passed, those of prioritize."""
        offered = orjson.dumps(self.names if names is None else names)
        return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (self.pod, offered)


class Questions:
    """An endless series of questions about one set of nodes."""

    def __init__(self, nodes: Sequence[str], asks: Sequence[Ask], seed: int, *, alike: bool = True) -> None:
        """`alike`: all pods have the same requests, as those of one template do; else the first container's differ."""
        self._nodes = list(nodes)
        self._asks = list(asks)
        self._alike = alike
        self._rng = random.Random(seed)
        self._number = 0

    def next(self) -> Question:
        self._number += 1
        self._rng.shuffle(self._nodes)
        first, *others = self._asks
        if not self._alike:
            first = first._replace(memory_mib=first.memory_mib + self._number % _DEMANDS)
        pod = pod_object(f"server-{self._number:06d}", uuid4(self._rng), [first, *others])
        return Question(orjson.dumps(pod), tuple(self._nodes))


class Change(NamedTuple):
    """A request to the pod API."""

    method: str
    path: str
    body: bytes


class Changes:
    """Creates and deletes one small bound pod after another, each on another card."""

    def __init__(self, cards: Sequence[tuple[str, str]], seed: int) -> None:
        self._cards = cards  # node, UUID
        self._rng = random.Random(seed)
        self._there = False
        self._number = 0

    def next(self) -> Change:
        self._there = not self._there
        name = f"change-{self._number:06d}"
        if self._there:
            return Change("POST", "/api/v1/pods", self._pod(name))
        self._number += 1
        return Change("DELETE", f"/api/v1/pods/{NAMESPACE}/{name}", b"")

    def _pod(self, name: str) -> bytes:
        node, uuid = self._rng.choice(self._cards)
        pod = pod_object(name, uuid4(self._rng), (Ask("app", "server", 1, _CHANGE_MIB, 0),))
        pod["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,{_CHANGE_MIB},0:;"}
        pod["spec"]["nodeName"] = node
        return orjson.dumps({"apiVersion": "v1", "kind": "Pod", **pod})


def cards_with_room(nodes: Sequence[Json], limit: int = 500) -> list[tuple[str, str]]:
    """Return (node, UUID) of the cards that take one more small pod, from the API's list of nodes."""
    found = [
        (node["node"], card["uuid"])
        for node in nodes
        for card in node["devices"]
        if not card["overcommitted"] and not card["blocked"] and not card["exclusive"]
        if card["free"]["slots"] >= 1 and card["free"]["memory"] >= _CHANGE_MIB and card["free"]["cores"] >= 1
    ]
    return found[:: max(1, len(found) // limit)]
