"""Makes reviews of pods, and sends each over one of 50 TLS connections when it is due.

It exists so that the webhooks are asked as an API server asks: many at once, at the rate at which pods are created,
over connections that are now and then opened anew. It must not know how answers are made. Invariants: an admission's
time runs from when it was due, not from when a connection was free; an answer that is not the expected one is an error.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

NAMESPACES: Final = 5_000
HARD_MIB: Final = 40_000
#: What the one existing pod of each namespace holds.
USED_MIB: Final = 8_000
_RECONNECT_EVERY: Final = 50


class Admission(NamedTuple):
    """One pod: the body for each webhook, and whether it is to be admitted."""

    mutate: bytes
    validate: bytes
    admitted: bool


class Times(NamedTuple):
    """Seconds of one admission: each call by itself, and both from when it was due."""

    mutate: float
    validate: float
    since_due: float


def admissions(number: int, seed: int) -> list[Admission]:
    """Pods of several kinds in namespaces chosen at random; one in ten passes its quota."""
    chance = random.Random(seed)
    return [_admission(chance, place) for place in range(number)]


def _admission(chance: random.Random, place: int) -> Admission:
    namespace, too_much = f"team-{chance.randrange(NAMESPACES):04d}", chance.random() < 0.1
    # A sidecar, an init and an app: what is charged is the larger of sidecar + init and sidecar + app.
    sidecar, init = chance.randint(500, 2_000), chance.randint(1_000, 20_000)
    app = HARD_MIB if too_much else chance.randint(1_000, 20_000)
    asked = {"sidecar": sidecar, "init": init, "main": app}
    before = _pod(place, namespace, asked, counted=False)
    after = _pod(place, namespace, asked, counted=True)
    return Admission(_review(place, namespace, before), _review(place, namespace, after), not too_much)


def _pod(place: int, namespace: str, asked: dict[str, int], *, counted: bool) -> dict[str, Any]:
    """A pod of a Deployment, about 5 KB; `counted`: the mutating webhook has seen it."""
    containers = {name: _container(name, mib, counted=counted) for name, mib in asked.items()}
    containers["sidecar"]["restartPolicy"] = "Always"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "trainer-7d9c5b6f4d-",
            "namespace": namespace,
            "labels": {"app": "trainer", "pod-template-hash": "7d9c5b6f4d", "batch": str(place)},
            "annotations": {"nvidia.com/use-gputype": "A100", "team.example.com/note": "x" * 500},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "trainer-7d9c5b6f4d", "uid": "u"}
            ],
        },
        "spec": {
            "schedulerName": "gpu-scheduler" if counted else "default-scheduler",
            "initContainers": [containers["sidecar"], containers["init"]],
            "containers": [containers["main"], _plain("logs"), _plain("metrics")],
            "volumes": [{"name": f"v{number}", "emptyDir": {}} for number in range(8)],
            "tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(6)],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def _container(name: str, mebibytes: int, *, counted: bool) -> dict[str, Any]:
    quantities = {"nvidia.com/gpumem": str(mebibytes)} | ({"nvidia.com/gpu": "1"} if counted else {})
    return _plain(name) | {"resources": {"limits": quantities | {"cpu": "4"}, "requests": quantities | {"cpu": "4"}}}


def _plain(name: str) -> dict[str, Any]:
    env = [{"name": f"VARIABLE_{number}", "value": "value of some length"} for number in range(8)]
    mounts = [{"name": f"v{number}", "mountPath": f"/mnt/v{number}"} for number in range(4)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    return {"name": name, "image": f"images/{name}:1.2.3", "env": env, "volumeMounts": mounts, "livenessProbe": probe}


def _review(place: int, namespace: str, pod: dict[str, Any]) -> bytes:
    request = {
        "uid": f"{place:08d}-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": ["a", "b"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


class Load:
    """Connections that share one list of admissions."""

    def __init__(self, port: int, trusted: Path, work: Sequence[Admission], rate: float) -> None:
        self.times: list[Times] = []
        self.failures: list[str] = []
        self.connections = 0
        self._port = port
        self._context = ssl.create_default_context(cafile=str(trusted))
        self._work = work
        self._rate = rate
        self._next = 0
        self._lock = threading.Lock()

    def run(self, connections: int, progress: Callable[[int], None]) -> float:
        """Send everything; returns the seconds it took.

        `progress` is called now and then with the number that is done.
        """
        self._started = time.perf_counter()
        threads = [threading.Thread(target=self._send, daemon=True) for _ in range(connections)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            progress(len(self.times))
            time.sleep(0.1)
        return time.perf_counter() - self._started

    def _send(self) -> None:
        connection = self._connect()
        sent = 0
        while (taken := self._take()) is not None:
            due, admission = taken
            if due > (now := time.perf_counter()):
                time.sleep(due - now)
            # An API server also opens new connections, after it has closed idle ones.
            if sent % _RECONNECT_EVERY == _RECONNECT_EVERY - 1:
                connection.close()
                connection = self._connect()
            sent += 1
            self._admit(connection, admission, due)
        connection.close()

    def _admit(self, connection: http.client.HTTPSConnection, admission: Admission, due: float) -> None:
        try:
            mutate, answer = _call(connection, "/mutate", admission.mutate)
            patch = base64.b64decode(answer["patch"])
            validate, verdict = _call(connection, "/validate", admission.validate)
        except (OSError, http.client.HTTPException, LookupError, ValueError) as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        if b"gpu-scheduler" not in patch or verdict["allowed"] != admission.admitted:
            self.failures.append(f"not the expected answer: {verdict}")
        self.times.append(Times(mutate, validate, time.perf_counter() - due))

    def _take(self) -> tuple[float, Admission] | None:
        with self._lock:
            place, self._next = self._next, self._next + 1
        if place >= len(self._work):
            return None
        due = self._started + place / self._rate if self._rate else time.perf_counter()
        return due, self._work[place]

    def _connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=30, context=self._context)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self.connections += 1
        return connection


def _call(connection: http.client.HTTPSConnection, path: str, body: bytes) -> tuple[float, dict[str, Any]]:
    started = time.perf_counter()
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    raw = response.read()
    seconds = time.perf_counter() - started
    if response.status != http.client.OK:
        raise ValueError(f"{path}: {response.status}: {raw[:200]!r}")
    answer: dict[str, Any] = json.loads(raw)["response"]
    return seconds, answer
