"""The version of the API server, for people who read metrics.

It must not delay the start. Invariant: the version is "" until the API server has answered.
"""

import asyncio
import json

from extender.kube.client import Answer, KubeClient

_RETRY_SECONDS = 30.0


class ServerVersion:
    """The answer to GET /version."""

    def __init__(self, client: KubeClient) -> None:
        self.text = ""
        self._client = client

    async def run(self) -> None:
        """Ask until the API server answers."""
        while not self.text:
            answer = await self._client.request("GET", "/version", timeout_seconds=5)
            if isinstance(answer, Answer) and answer.ok:
                self.text = _git_version(answer.body)
                return
            await asyncio.sleep(_RETRY_SECONDS)


def _git_version(body: bytes) -> str:
    try:
        said = json.loads(body)
    except ValueError:
        return "unknown"
    version = said.get("gitVersion") if isinstance(said, dict) else None
    return version if isinstance(version, str) and version else "unknown"
