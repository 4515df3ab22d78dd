"""A short client for the tests of the API server.

It must not know how the server works. Invariant: it adds nothing to a request and hides nothing of an answer.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import aiohttp
import orjson

Data: TypeAlias = Any
"""Decoded JSON, or what will be encoded."""

PODS = "/api/v1/namespaces/ns/pods"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
_TYPES = {"PATCH": "application/merge-patch+json"}


class Client:
    """Requests to one server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def send(self, method: str, path: str, body: Data = None, **headers: str) -> tuple[int, Data]:
        """Send a request; returns status and decoded body."""
        data = body if isinstance(body, bytes) else None if body is None else orjson.dumps(body)
        headers = {"Content-Type": _TYPES.get(method, "application/json")} | headers
        async with self.session.request(method, path, data=data, headers=headers) as response:
            text = await response.read()
            return response.status, orjson.loads(text) if text[:1] in (b"{", b"[") else text

    async def ok(self, method: str, path: str, body: Data = None) -> Data:
        """Return the decoded body of an answer, which must not be a refusal."""
        status, answer = await self.send(method, path, body)
        assert status < 300, answer
        return answer

    async def create(self, name: str = "a", **meta: Data) -> Data:
        return await self.ok("POST", PODS, pod(name, **meta))

    async def annotate(self, name: str, **annotations: str | None) -> Data:
        return await self.ok("PATCH", f"{PODS}/{name}", {"metadata": {"annotations": annotations}})

    async def bind(self, name: str, node: str = "n", **meta: Data) -> tuple[int, Data]:
        body = {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node}}
        return await self.send("POST", f"{PODS}/{name}/binding", body)

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator["Stream"]:
        """Open a watch."""
        async with self.session.get(path, params={"watch": "1"} | query) as response:
            yield Stream(response)


class Stream:
    """The lines of a watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.status = response.status

    async def line(self) -> bytes:
        """Return the next line; b"" at the end."""
        async with asyncio.timeout(10):
            return await self.response.content.readline()

    async def event(self) -> Data:
        """Return the next event; None at the end."""
        line = await self.line()
        return orjson.loads(line) if line else None

    async def seen(self) -> tuple[str, str]:
        """Return type and name of the next event."""
        event = await self.event()
        return event["type"], event["object"]["metadata"].get("name", "")


def pod(name: str = "a", **meta: Data) -> dict[str, Data]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **meta},
        "spec": {"containers": [{"name": "app", "image": "registry.invalid/app:1"}]},
    }
