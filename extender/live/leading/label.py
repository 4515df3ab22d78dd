"""The label by which a Service finds the replica that leads.

It exists because every replica is ready to answer webhooks, and only the leader answers kube-scheduler: one readiness
cannot say both. It must not decide who leads. Invariants: this process labels its own pod only while it leads; a leader
takes the label from every other pod, so that what a killed one left does not stay; nothing waits for it.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from extender.kube.client import Answer, KubeClient, Unknown
from extender.kube.paths import PODS, api_path
from extender.logs import logger

LABEL: Final = "gpu-extender.io/role"
LEADER: Final = "leader"
_TIMEOUT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 1.0
_MERGE: Final = "application/merge-patch+json"


class OwnPod(NamedTuple):
    """The pod that this process runs in."""

    namespace: str
    name: str


class LeaderLabel:
    """The label of this process's pod, and what others have left of theirs."""

    def __init__(self, client: KubeClient, pod: OwnPod, leads: Callable[[], bool]) -> None:
        self._client = client
        self._pod = pod
        self._leads = leads
        self._written: bool | None = None

    async def run(self) -> None:
        """Follow leadership for ever."""
        while True:
            leads = self._leads()
            if leads == self._written:
                await asyncio.sleep(_LOOK_SECONDS)
            elif await self._write(self._pod.name, labelled=leads) and (not leads or await self._take_from_others()):
                self._written = leads
            else:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _take_from_others(self) -> bool:
        """Whether no other pod has the label any more."""
        query = urlencode({"labelSelector": f"{LABEL}={LEADER}"})
        answer = await self._send("GET", f"{api_path(PODS, namespace=self._pod.namespace)}?{query}")
        if answer is None:
            return False
        others = [name for name in _names(answer.body) if name != self._pod.name]
        return all([await self._write(name, labelled=False) for name in others])

    async def _write(self, name: str, *, labelled: bool) -> bool:
        body = {"metadata": {"labels": {LABEL: LEADER if labelled else None}}}
        path = api_path(PODS, name, namespace=self._pod.namespace)
        return await self._send("PATCH", path, json.dumps(body).encode()) is not None

    async def _send(self, method: str, path: str, body: bytes | None = None) -> Answer | None:
        """Return the answer if it was done, or if the pod is gone; None otherwise."""
        answer = await self._client.request(
            method, path, timeout_seconds=_TIMEOUT_SECONDS, body=body, content_type=_MERGE
        )
        if not isinstance(answer, Unknown) and answer.status in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            return answer
        why = answer.why if isinstance(answer, Unknown) else f"{answer.status} {answer.message}"
        logger().warning("leader's label cannot be written", path=path, why=why)
        return None


def _names(body: bytes) -> Iterator[str]:
    try:
        listed: dict[str, Any] = json.loads(body)
    except ValueError:
        return
    for item in listed.get("items") or ():
        yield str(item["metadata"]["name"])
