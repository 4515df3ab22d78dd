"""The Binding that puts a pod on a node with its cards, in one write.

Why it exists: a pod must never be on a node without its cards, so one request carries both. Annotations that would make
the API server refuse every later update of the pod are refused here first. It must not know what is booked. Invariants:
the Binding names the pod's UID and version, so it is refused for any other; every key that belongs to the scheduler is
written.
"""

import json
from collections.abc import Callable

from accounting.pod import Pod
from extender.cluster import Cluster
from extender.convert import (
    TOTAL_LIMIT_BYTES,
    annotation_bytes,
    bind_annotations,
    bind_labels,
    first_illegal_key,
)
from extender.kube.client import Answer, Fenced, KubeClient, Unknown
from extender.kube.paths import PODS, api_path
from extender.live.leading import Leadership


class BindingWriter:
    """Writes Bindings. Each pod is given with the node and the cards that it is to have."""

    def __init__(
        self,
        cluster: Cluster,
        client: KubeClient,
        leadership: Leadership,
        unix_time: Callable[[], float],
        *,
        lock_mode: bool,
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._leadership = leadership
        self._unix_time = unix_time
        self._lock_mode = lock_mode

    def refusal(self, pod: Pod) -> str | None:
        """Return why a pod's annotations must not be written; None if they may be."""
        annotations = self._annotations(pod)
        illegal = first_illegal_key(annotations)
        if illegal is not None:
            return f"AnnotationIllegal: {illegal} is no legal annotation key"
        facts = self._cluster.registry.facts(pod.uid)
        size = annotation_bytes(annotations) + (facts.annotation_bytes if facts is not None else 0)
        if size > TOTAL_LIMIT_BYTES:
            return f"AnnotationsTooLarge: {size} bytes with the allocation, the API server allows {TOTAL_LIMIT_BYTES}"
        return None

    async def write(self, pod: Pod, version: str, timeout_seconds: float) -> Answer | Unknown:
        """Send the Binding for this version of a pod."""
        allocation = pod.allocation if isinstance(pod.allocation, tuple) else None
        metadata: dict[str, object] = {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": self._annotations(pod),
            "labels": bind_labels(str(pod.node), allocation),
        }
        if version:
            metadata["resourceVersion"] = version
        target = {"apiVersion": "v1", "kind": "Node", "name": pod.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        path = api_path(PODS, pod.name, namespace=pod.namespace, subresource="binding")
        fenced = Fenced(json.dumps(body).encode(), self._may_write_now)
        return await self._client.request("POST", path, body=fenced, timeout_seconds=timeout_seconds)

    def _may_write_now(self) -> bool:
        """Whether a Binding may still be sent; checked again just before its bytes leave."""
        return self._leadership.may_write(0)

    def _annotations(self, pod: Pod) -> dict[str, str]:
        allocation = pod.allocation if isinstance(pod.allocation, tuple) else None
        vendors, now = self._cluster.settings.vendors, int(self._unix_time())
        return bind_annotations(vendors, str(pod.node), allocation, now, lock_mode=self._lock_mode)
