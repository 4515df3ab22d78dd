"""Reading single pods, and changing a pod's version.

Why it exists: where the watch is too slow or cannot tell, a single pod is read; and once a pod's version has changed, a
Binding that names an earlier version is refused. It must not decide anything. Invariant: what it reads is recorded,
also in the journal, as if the watch had sent it.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus

import msgspec

from accounting.pod import Pod
from extender.cluster import Cluster
from extender.convert import RETRY_AT
from extender.kube.client import MERGE_PATCH, Answer, KubeClient, Unknown
from extender.kube.events import PodRef
from extender.kube.paths import PODS, api_path
from extender.live.watching import PodInformer
from extender.wire import core_v1
from extender.wire.shallow import read_json


class PodReader:
    """Reads pods and records them."""

    def __init__(
        self,
        client: KubeClient,
        cluster: Cluster,
        informer: PodInformer,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._informer = informer
        self._utc_now = utc_now

    def version(self, uid: str) -> str:
        """Return the newest version that is known of a pod."""
        return self._cluster.registry.version(uid)

    async def read(self, namespace: str, name: str, uid: str, timeout_seconds: float) -> Pod | Unknown | None:
        """Return a pod as it is now, None if it is gone."""
        path = api_path(PODS, name, namespace=namespace)
        answer = await self._client.request("GET", path, timeout_seconds=max(0.1, timeout_seconds))
        if isinstance(answer, Unknown):
            return answer
        if answer.status == HTTPStatus.NOT_FOUND:
            self._gone(uid)
            return None
        if not answer.ok:
            return Unknown(f"{answer.status} {answer.message}")
        return self.note(answer.body, uid)

    def note(self, body: bytes, uid: str) -> Pod | Unknown | None:
        """Record a pod that the API server has just answered."""
        try:
            wire = read_json(body, core_v1.Pod)
        except msgspec.DecodeError as error:
            return Unknown(f"the pod does not decode: {error}")
        if wire.metadata is None or wire.metadata.uid != uid:
            # Another pod has this name now; the watch will show it.
            self._gone(uid)
            return None
        self._cluster.events.pod_read.publish("put", body.decode())
        return self._informer.read(wire)

    async def move_on(self, ref: PodRef, version: str, timeout_seconds: float) -> bool:
        """Give an unbound pod another version, so that a Binding that names the given one is refused if it arrives.

        Returns whether the pod is known to have another version, to be bound or to be gone. The caller must check that
        it may write.
        """
        metadata = {
            "uid": ref.uid,
            "resourceVersion": version,
            "annotations": {RETRY_AT: self._utc_now().isoformat()},
        }
        answer = await self._client.request(
            "PATCH",
            api_path(PODS, ref.name, namespace=ref.namespace),
            body=json.dumps({"metadata": metadata}).encode(),
            content_type=MERGE_PATCH,
            timeout_seconds=timeout_seconds,
        )
        if isinstance(answer, Answer) and answer.ok:
            self.note(answer.body, ref.uid)
        elif answer.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
            await self.read(ref.namespace, ref.name, ref.uid, timeout_seconds)
        return self._cluster.registry.version(ref.uid) != version

    def _gone(self, uid: str) -> None:
        self._cluster.events.pod_read.publish("deleted", json.dumps({"metadata": {"uid": uid}}))
        self._cluster.registry.forget(uid)
