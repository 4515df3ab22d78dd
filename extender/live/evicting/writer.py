"""What evicting writes: evictions, and the annotation on the pod for which they are.

It must not decide anything. Invariants: nothing leaves that this replica may not write any more; a write names the UID
of its pod, so that another one of the same name is never meant.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime

from accounting.pod import Pod, Preempting
from accounting.pod_record import PodRecord
from extender.convert import PREEMPTING, RETRY_AT, preempting_text
from extender.kube.client import MERGE_PATCH, Answer, Fenced, KubeClient, Unknown
from extender.kube.paths import PODS, api_path
from extender.live.binding import PodReader
from extender.live.leading import Leadership


class EvictionWriter:
    """Writes for one cluster."""

    def __init__(
        self,
        client: KubeClient,
        leadership: Leadership,
        reader: PodReader,
        request_seconds: float,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._leadership = leadership
        self._reader = reader
        self._request_seconds = request_seconds
        self._utc_now = utc_now

    def is_leading(self) -> bool:
        """Whether this process leads, though perhaps not for as long as a write takes."""
        return self._leadership.is_leader()

    def may_write(self) -> bool:
        """Whether a write may begin now."""
        return self._leadership.may_write(self._request_seconds)

    def unix_seconds(self) -> int:
        """Return the time that annotations are compared with."""
        return int(self._utc_now().timestamp())

    async def evict(self, victim: PodRecord) -> Answer | Unknown:
        """Ask for a pod's eviction, with its own grace period."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": victim.name, "namespace": victim.namespace},
            "deleteOptions": {"preconditions": {"uid": victim.uid}},
        }
        path = api_path(PODS, victim.name, namespace=victim.namespace, subresource="eviction")
        return await self._client.request("POST", path, body=self._fenced(body), timeout_seconds=self._request_seconds)

    async def keep(self, pod: Pod, preempting: Preempting | None) -> Answer | Unknown:
        """Say on a pod what is kept for it; None: nothing any more. What is answered is known from then on."""
        return await self._annotate(pod, {PREEMPTING: None if preempting is None else preempting_text(preempting)})

    async def wake(self, pod: Pod) -> Answer | Unknown:
        """Make kube-scheduler ask about a pod."""
        return await self._annotate(pod, {RETRY_AT: self._utc_now().isoformat()})

    async def _annotate(self, pod: Pod, annotations: dict[str, str | None]) -> Answer | Unknown:
        body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        answer = await self._client.request(
            "PATCH",
            api_path(PODS, pod.name, namespace=pod.namespace),
            body=self._fenced(body),
            content_type=MERGE_PATCH,
            timeout_seconds=self._request_seconds,
        )
        if isinstance(answer, Answer) and answer.ok:
            self._reader.note(answer.body, pod.uid)
        return answer

    def _fenced(self, body: object) -> Fenced:
        return Fenced(json.dumps(body).encode(), lambda: self._leadership.may_write(0))
