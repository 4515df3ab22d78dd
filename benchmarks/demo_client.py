"""Talks to the extender as kube-scheduler and the kubelet do: the verbs, and the pods of the embedded cluster.

It exists so that the demonstration reads as a story. It must not know the story or its numbers. Invariant: a pod that
was created here is deleted at the end; a missing or malformed answer is a `DemoError`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from benchmarks.http_load import Address, Connection

Json = dict[str, Any]
NAMESPACE = "demo"


class DemoError(Exception):
    """The demonstration cannot go on: the server does not answer, or not in the expected form."""


class Filtered(NamedTuple):
    """An answer to filter: the nodes that pass, and the text for each that does not."""

    passed: list[str]
    failed: dict[str, str]
    """Nodes that an eviction could help."""
    unresolvable: dict[str, str]
    """Nodes where no eviction could help."""


class Client:
    """One connection to one extender."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connection = Connection(address, timeout_seconds=30)
        self._created: dict[str, str] = {}  # name -> UID

    def nodes(self) -> list[Json]:
        answer: list[Json] = self._get("/api/v1/nodes")
        return answer

    def pod(self, uid: str) -> Json | None:
        """Return the account of a pod; None if it is gone."""
        return next((pod for pod in self._get("/api/v1/pods") if pod["uid"] == uid), None)

    def put(self, pod: Json) -> Json:
        """Create a pod, or report its status as the kubelet would."""
        meta = pod["metadata"]
        self._created[meta["name"]] = meta["uid"]
        answer: Json = self._send("POST", "/api/v1/pods", {"apiVersion": "v1", "kind": "Pod", **pod})
        return answer

    def delete(self, name: str) -> None:
        """Delete a pod, unless it is gone already."""
        self._created.pop(name, None)
        self._send("DELETE", f"/api/v1/pods/{NAMESPACE}/{name}", None, missing_ok=True)

    def delete_all(self) -> None:
        """Delete every pod that was created here."""
        for name in list(self._created):
            self.delete(name)

    def close(self) -> None:
        self._connection.close()

    def filter(self, pod: Json, nodes: Sequence[str]) -> Filtered:
        answer = self._send("POST", "/filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        if answer["Error"]:
            raise DemoError(f"filter: {answer['Error']}")
        return Filtered(answer["NodeNames"], answer["FailedNodes"], answer["FailedAndUnresolvableNodes"])

    def prioritize(self, pod: Json, nodes: Sequence[str]) -> dict[str, int]:
        answer = self._send("POST", "/prioritize", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        return {host["Host"]: host["Score"] for host in answer}

    def bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        body = {"PodName": meta["name"], "PodNamespace": NAMESPACE, "PodUID": meta["uid"], "Node": node}
        answer = self._send("POST", "/bind", body)
        if answer["Error"]:
            raise DemoError(f"bind: {answer['Error']}")

    def _get(self, path: str) -> Any:  # noqa: ANN401 - a JSON value
        return self._send("GET", path, None)

    def _send(self, method: str, path: str, body: Json | None, *, missing_ok: bool = False) -> Any:  # noqa: ANN401
        try:
            answer = self._connection.call(method, path, b"" if body is None else orjson.dumps(body))
            if answer.status == 404 and missing_ok:
                return None
            if answer.status not in (200, 201):
                raise DemoError(f"{method} {path}: status {answer.status}: {answer.body.decode(errors='replace')}")
            return answer.json()
        except (OSError, json.JSONDecodeError) as error:
            raise DemoError(f"{method} {path}: {error}") from None
