"""AdmissionReviews, and a client that sends them to a real server.

It exists so that every test of the webhooks goes over the wire, as the API server's requests do. It must not judge.
Invariant: a review is what an API server sends, with default-scheduler where a pod names none.
"""

import base64
import copy
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import aiohttp

from accounting.vendor import NVIDIA, Vendor
from extender.admission.service import Admission
from extender.admission.settings import AdmissionSettings
from extender.cluster.cluster import Cluster
from extender.cluster.loading import collect
from extender.config import ServerSettings, Settings
from extender.convert.manifests import parse_manifests
from extender.server.app import make_app
from extender.server.ports import start
from tests.extender.objects import Json, container, listed

OURS = "gpu-scheduler"
JANE = "jane"
SCHEDULER_ACCOUNT = "system:serviceaccount:kube-system:gpu-extender"
PLUGIN_ACCOUNT = "system:serviceaccount:kube-system:hami-device-plugin"


def pod(
    *containers: Json,
    inits: list[Json] | None = None,
    scheduler: str = OURS,
    annotations: Json | None = None,
    labels: Json | None = None,
    **spec: object,
) -> Json:
    """A pod under review; by default the mutating webhook has seen it."""
    meta: Json = {"name": "p", "namespace": "team"}
    if annotations:
        meta["annotations"] = annotations
    if labels:
        meta["labels"] = labels
    body: Json = {"schedulerName": scheduler, "containers": list(containers) or [container("main")]}
    if inits:
        body["initContainers"] = inits
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body | spec, "status": {"phase": "Pending"}}


def limits(**quantities: object) -> Json:
    """A container's resources as a person writes them: limits only, by short names."""
    names = {"count": "gpu", "memory": "gpumem", "percentage": "gpumem-percentage", "cores": "gpucores"}
    return {"limits": {f"nvidia.com/{names[key]}": value for key, value in quantities.items()}}


def review(
    obj: Json | None,
    *,
    old: Json | None = None,
    operation: str = "CREATE",
    resource: str = "pods",
    user: str = JANE,
    groups: list[str] | None = None,
    dry_run: bool = False,
    namespace: str = "team",
    group: str = "",
) -> Json:
    """A review of a write; `resource` may name a subresource after a slash."""
    name, _, subresource = resource.partition("/")
    request: Json = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": group, "version": "v1", "resource": name},
        "name": "p",
        "namespace": namespace,
        "operation": operation,
        "userInfo": {"username": user, "groups": groups or ["system:authenticated"]},
        "object": obj,
        "oldObject": old,
        "dryRun": dry_run,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
    }
    if subresource:
        request["subResource"] = subresource
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


class Answer(NamedTuple):
    """A response."""

    allowed: bool
    message: str
    code: int
    patch: list[Json]
    warnings: list[str]
    raw: Json


class Webhooks:
    """The webhooks of one server."""

    def __init__(self, session: aiohttp.ClientSession, cluster: Cluster, admission: Admission) -> None:
        self.session = session
        self.cluster = cluster
        self.admission = admission

    async def send(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send any body; return status and body of the answer."""
        # A stream, because the client warns of large bodies in bytes.
        async with self.session.post(
            path, data=io.BytesIO(body), headers={"Content-Type": "application/json"}
        ) as response:
            return response.status, await response.read()

    async def ask(self, path: str, body: Json) -> Answer:
        """Return the answer to a review; it must be well-formed and have the review's uid."""
        status, raw = await self.send(path, json.dumps(body).encode())
        assert status == 200, raw
        answer = json.loads(raw)
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert answer.keys() == {"apiVersion", "kind", "response"}
        response = answer["response"]
        assert response["uid"] == body["request"]["uid"]
        patch = []
        if "patch" in response:
            assert response["patchType"] == "JSONPatch"
            patch = json.loads(base64.b64decode(response["patch"]))
            assert patch
        said = response.get("status", {})
        warnings = response.get("warnings", [])
        return Answer(response["allowed"], said.get("message", ""), said.get("code", 200), patch, warnings, response)

    async def mutate(self, obj: Json, **given: Any) -> Json:  # noqa: ANN401 - any argument of `review`
        """Return a pod as the API server would have it afterwards."""
        answer = await self.ask("/mutate", review(obj, **given))
        assert answer.allowed
        return patched(obj, answer.patch)

    async def patch(self, obj: Json, **given: Any) -> list[Json]:  # noqa: ANN401 - the same
        """Return the operations that a pod gets."""
        return (await self.ask("/mutate", review(obj, **given))).patch

    async def validate(self, obj: Json | None, **given: Any) -> Answer:  # noqa: ANN401 - the same
        """Return the verdict on a write."""
        return await self.ask("/validate", review(obj, **given))

    async def admit(self, obj: Json, **given: Any) -> Answer:  # noqa: ANN401 - the same
        """Return the verdict on a pod that goes through both webhooks, as the API server sends it."""
        return await self.validate(await self.mutate(obj, **given), **given)


def patched(obj: Json, patch: list[Json]) -> Json:
    """Return an object with JSON patch operations applied; only "add" is known."""
    result = copy.deepcopy(obj)
    for operation in patch:
        assert operation["op"] == "add"
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place: Any = result
        for part in parents:
            # Adding to a missing parent raises KeyError or IndexError, which stand for the API server's refusal.
            place = place[int(part)] if isinstance(place, list) else place[part]
        if isinstance(place, list):
            place.insert(len(place) if last == "-" else int(last), operation["value"])
        else:
            place[last] = operation["value"]
    return result


def cluster_of(*objects: Json, vendor: Vendor = NVIDIA, further: tuple[Vendor, ...] = ()) -> Cluster:
    """Return an embedded cluster that holds these objects."""
    settings = Settings(vendor, further_vendors=further)
    cluster = Cluster(settings)
    cluster.load(collect(parse_manifests(listed(*objects).encode(), "--cluster", "test"), settings))
    return cluster


@asynccontextmanager
async def admitting(
    *objects: Json,
    settings: AdmissionSettings | None = None,
    vendor: Vendor = NVIDIA,
    further: tuple[Vendor, ...] = (),
    synced: bool = True,
    cluster: Cluster | None = None,
) -> AsyncIterator[Webhooks]:
    """Yield a client of the webhooks of a server over these objects."""
    server = replace(ServerSettings(), port=0)
    cluster = cluster or cluster_of(*objects, vendor=vendor, further=further)
    admission = Admission(cluster, settings, lambda: synced)
    runner, port = await start(make_app(cluster, server, admission=admission), server)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            yield Webhooks(session, cluster, admission)
    finally:
        await runner.cleanup()
