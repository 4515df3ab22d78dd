"""Plays the others who write objects in a cluster: users, controllers, kubelets, other schedulers.

It exists so that a test changes an object in one line. It must not bypass the API server's rules. Invariant: calls are
made in process, so they are not counted, suffer no faults, and are done when they return.
"""

import json
from typing import Any

from tests.apiserver.answers import answer
from tests.apiserver.calls import read_call
from tests.apiserver.pages import Page
from tests.apiserver.resources import PODS
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json

MERGE = "application/merge-patch+json"
PODS_PATH, NODES_PATH = "/api/v1/namespaces/{}/pods", "/api/v1/nodes"


class Kube:
    """Writes and reads objects of one API server."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def send(self, method: str, path: str, body: Any = None, content_type: str = "") -> Json:  # noqa: ANN401 - JSON
        """Carry out an API call; refusals raise ApiError."""
        text = b"" if body is None else json.dumps(body).encode()
        made = answer(self._api.registry, read_call(method, path, {}), text, content_type).body
        decoded: Json = json.loads(b"".join(made.chunks()) if isinstance(made, Page) else made)
        return decoded

    def create(self, obj: Json) -> Json:
        """Create a pod, a node or a quota; return it, a pod with its UID."""
        meta = {key: value for key, value in obj["metadata"].items() if key != "uid"}
        return self.send("POST", _collection(obj), obj | {"metadata": meta})

    def pod(self, name: str, namespace: str = "default") -> Json:
        """Return a pod as it is now."""
        return self.send("GET", f"{PODS_PATH.format(namespace)}/{name}")

    def pods(self) -> list[Json]:
        """Return all pods as they are now."""
        return [row.decode() for row in self._api.store.tables[PODS].rows]

    def node_of(self, name: str) -> str | None:
        """Return the node that a pod is on."""
        where = self.pod(name)["spec"].get("nodeName")
        return str(where) if where else None

    def node(self, name: str) -> Json:
        """Return a node as it is now."""
        return self.send("GET", f"{NODES_PATH}/{name}")

    def annotate_pod(self, name: str, annotations: Json) -> Json:
        """Set annotations; None removes one."""
        return self._patch(f"{PODS_PATH.format('default')}/{name}", {"metadata": {"annotations": annotations}})

    def annotate_node(self, name: str, annotations: Json) -> Json:
        """Set annotations; None removes one."""
        return self._patch(f"{NODES_PATH}/{name}", {"metadata": {"annotations": annotations}})

    def set_status(self, name: str, status: Json) -> Json:
        """Write a pod's status, as its kubelet does."""
        return self._patch(f"{PODS_PATH.format('default')}/{name}/status", {"status": status})

    def set_quota(self, name: str, hard: Json) -> Json:
        """Change a quota's limits."""
        return self._patch(f"/api/v1/namespaces/default/resourcequotas/{name}", {"spec": {"hard": hard}})

    def delete_pod(self, name: str, *, grace_seconds: int = 0) -> None:
        """Delete a pod; with a grace period it stays until its kubelet lets it go."""
        self.send("DELETE", f"{PODS_PATH.format('default')}/{name}", {"gracePeriodSeconds": grace_seconds})

    def delete_node(self, name: str) -> None:
        """Delete a node's object."""
        self.send("DELETE", f"{NODES_PATH}/{name}")

    def bind(self, name: str, node: str, annotations: Json | None = None) -> None:
        """Bind as another scheduler would."""
        meta = {"name": name, "annotations": annotations or {}}
        body = {"metadata": meta, "target": {"kind": "Node", "name": node}}
        self.send("POST", f"{PODS_PATH.format('default')}/{name}/binding", body)

    def recreate(self, obj: Json) -> Json:
        """Delete a pod at once and create one of the same name."""
        self.delete_pod(obj["metadata"]["name"])
        return self.create(obj)

    def _patch(self, path: str, body: Json) -> Json:
        return self.send("PATCH", path, body, MERGE)


def _collection(obj: Json) -> str:
    namespace = obj["metadata"].get("namespace", "default")
    paths: dict[str, str] = {
        "Pod": PODS_PATH.format(namespace),
        "Node": NODES_PATH,
        "ResourceQuota": f"/api/v1/namespaces/{namespace}/resourcequotas",
        "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
        "DeviceClass": f"/apis/{obj['apiVersion']}/deviceclasses",
        "ResourceSlice": f"/apis/{obj['apiVersion']}/resourceslices",
        "ResourceClaim": f"/apis/{obj['apiVersion']}/namespaces/{namespace}/resourceclaims",
        "Hold": f"/apis/{obj['apiVersion']}/namespaces/{namespace}/holds",
        "VirtualMachineInstance": f"/apis/{obj['apiVersion']}/namespaces/{namespace}/virtualmachineinstances",
    }
    return paths[obj["kind"]]
