"""Runs the cases of conformance.yaml against an API server and reports which fail.

It exists so that one specification judges the server for tests and a real kube-apiserver alike. It must not know to
which of them it talks. Invariant: each case has a namespace of its own, which is removed afterwards; nothing depends on
how long anything takes.

    python -m tests.apiserver.conformance URL [--token TOKEN] [--insecure] [--only TEXT]

A case is a list of steps. `request: METHOD PATH` with `body`, `type` (the content type), and what is expected: `status`
(one, or a list of possible ones), `answer` (see matching.py) and `save` (name: path in the answer). With `parallel: N`
the request is made N times at once and `statuses` counts the answers. `watch: PATH` opens a watch, does the steps under
`during`, and expects exactly `events`, in order (bookmarks only where they are named); with `ends: true` then a clean
end; `expired: true` expects 410, as HTTP status or as an ERROR event (or, on a new server whose history still has the
version, a clean end). A case with `since` or `until` is for those minor versions.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
import yaml

from tests.apiserver.matching import fill, mismatch, value_at

CASES = Path(__file__).with_name("conformance.yaml")
_TIMEOUT_SECONDS = 30.0
_LINE_BYTES = 2**22
_TYPES = {"PATCH": "application/merge-patch+json"}


class Failure(NamedTuple):
    """One case that does not hold."""

    case: str
    step: str
    why: str


class _Unmet(Exception):
    """An expectation that is not met."""


async def run_conformance(
    base_url: str, headers: Mapping[str, str] | None = None, *, verify_tls: bool = True, only: str = ""
) -> list[Failure]:
    """Run every case whose name contains `only`; return what failed."""
    document = yaml.safe_load(CASES.read_text())
    prefix = f"conformance-{time.time_ns() // 1_000_000 % 10**9:x}"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    connector = aiohttp.TCPConnector(ssl=verify_tls)
    failures = []
    async with aiohttp.ClientSession(
        base_url, headers=headers, timeout=timeout, connector=connector, read_bufsize=_LINE_BYTES
    ) as session:
        minor = await _minor(session)
        for number, case in enumerate(document["cases"]):
            if only in case["name"] and _minor_of(case.get("since")) <= minor <= _minor_of(case.get("until"), 10**6):
                failure = await _Case(session, f"{prefix}-{number:03}", case, document["fixtures"]).run()
                failures.extend([failure] if failure else [])
    return failures


async def _minor(session: aiohttp.ClientSession) -> int:
    """Return the second number of the server's Kubernetes version."""
    async with session.get("/version") as response:
        return int((await response.json())["minor"])


def _minor_of(version: str | None, otherwise: int = 0) -> int:
    return otherwise if version is None else int(version.partition(".")[2])


class _Case:
    """One case while it runs."""

    def __init__(
        self, session: aiohttp.ClientSession, namespace: str, case: Mapping[str, Any], fixtures: Mapping[str, Any]
    ) -> None:
        self._session = session
        self._case = case
        self._fixtures = fixtures
        core = f"/api/v1/namespaces/{namespace}"
        self._values: dict[str, Any] = {
            "ns": namespace,
            "pods": f"{core}/pods",
            "quotas": f"{core}/resourcequotas",
            "budgets": f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
            "leases": f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
            "events": f"/apis/events.k8s.io/v1/namespaces/{namespace}/events",
        }

    async def run(self) -> Failure | None:
        """Make the namespace, run the steps, clean up."""
        step: Mapping[str, Any] = {"request": "set up"}
        try:
            await self._set_up()
            for step in self._case["steps"]:
                await self._step(step)
        except (_Unmet, KeyError, aiohttp.ClientError, TimeoutError) as error:
            label = str(step.get("request") or step.get("watch"))
            return Failure(self._case["name"], label, f"{type(error).__name__}: {error}".removeprefix("_Unmet: "))
        finally:
            await self._clean_up()
        return None

    async def _set_up(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._values["ns"]}}
        await self._expect("POST", "/api/v1/namespaces", namespace, (201,))
        # Pods need this account. Its controller may not have made it yet, and servers without accounts never do.
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        path = f"/api/v1/namespaces/{self._values['ns']}/serviceaccounts"
        await self._expect("POST", path, account, (201, 404, 405, 409))

    async def _clean_up(self) -> None:
        _, pods = await self._send("GET", self._values["pods"])
        for item in (pods or {}).get("items") or []:
            path = f"{self._values['pods']}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):
                await self._send("PATCH", path, {"metadata": {"finalizers": None}})
            await self._send("DELETE", path, {"gracePeriodSeconds": 0})
        await self._send("DELETE", f"/api/v1/nodes/{self._values['ns']}")
        await self._send("DELETE", f"/api/v1/namespaces/{self._values['ns']}")

    async def _step(self, step: Mapping[str, Any]) -> None:
        if "watch" in step:
            await self._watch(step)
            return
        method, path = fill(step["request"], self._values, self._fixtures).split(" ", 1)
        body = fill(step.get("body"), self._values, self._fixtures)
        if "parallel" in step:
            sent = [self._send(method, path, body, step.get("type")) for _ in range(step["parallel"])]
            counts = Counter(status for status, _ in await asyncio.gather(*sent))
            if dict(counts) != step["statuses"]:
                raise _Unmet(f"expected {step['statuses']}, got {dict(counts)}")
            return
        wanted = step.get("status", 200)
        answer = await self._expect(
            method, path, body, tuple(wanted) if isinstance(wanted, list) else (wanted,), step.get("type")
        )
        text = mismatch(fill(step.get("answer", {}), self._values, self._fixtures), answer)
        if text is not None:
            raise _Unmet(text)
        for name, where in step.get("save", {}).items():
            self._values[name] = value_at(answer, where)

    async def _expect(
        self, method: str, path: str, body: object, wanted: Sequence[int], content_type: str | None = None
    ) -> Any:  # noqa: ANN401 - JSON data
        status, answer = await self._send(method, path, body, content_type)
        if status not in wanted:
            raise _Unmet(f"expected {' or '.join(map(str, wanted))}, got {status}: {str(answer)[:500]}")
        return answer

    async def _send(
        self, method: str, path: str, body: object = None, content_type: str | None = None
    ) -> tuple[int, Any]:
        data = body.encode() if isinstance(body, str) else None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content_type or _TYPES.get(method, "application/json")}
        async with self._session.request(method, path, data=data, headers=headers) as response:
            text = await response.read()
        return response.status, _decoded(text)

    async def _watch(self, step: Mapping[str, Any]) -> None:
        path = fill(step["watch"], self._values, self._fixtures)
        path += ("&" if "?" in path else "?") + "watch=true"
        async with self._session.get(path) as response:
            if step.get("expired"):
                await _expect_expired(response)
                return
            if response.status != step.get("status", 200):
                raise _Unmet(f"got {response.status}: {await response.text()}")
            for inner in step.get("during", []):
                await self._step(inner)
            expected = fill(step.get("events", []), self._values, self._fixtures)
            async with _events(response, bookmarks=any(one["type"] == "BOOKMARK" for one in expected)) as events:
                for number, wanted in enumerate(expected):
                    text = mismatch(wanted, await anext(events, {}), f"event {number}")
                    if text is not None:
                        raise _Unmet(text)
                if step.get("ends") and (more := await anext(events, None)) is not None:
                    raise _Unmet(f"expected the end, got {more}")


@asynccontextmanager
async def _events(response: aiohttp.ClientResponse, *, bookmarks: bool) -> AsyncIterator[AsyncIterator[Any]]:
    async def read() -> AsyncIterator[Any]:
        while line := await response.content.readline():
            event = orjson.loads(line)
            if bookmarks or event["type"] != "BOOKMARK":
                yield event

    yield read()


async def _expect_expired(response: aiohttp.ClientResponse) -> None:
    if response.status == 200:
        line = await response.content.readline()
        text = (
            mismatch({"type": "ERROR", "object": {"code": 410, "reason": "Expired"}}, orjson.loads(line))
            if line
            else None
        )
    else:
        text = mismatch({"code": 410, "reason": "Expired"}, await response.json())
    if text is not None:
        raise _Unmet(text)


def _decoded(text: bytes) -> Any:  # noqa: ANN401 - JSON data
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases against a URL; exit status 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver.conformance", description="Judge an API server.")
    parser.add_argument("url")
    parser.add_argument("--token")
    parser.add_argument("--insecure", action="store_true", help="do not check the server's certificate")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases whose name contains it")
    arguments = parser.parse_args(argv)
    headers = {"Authorization": f"Bearer {arguments.token}"} if arguments.token else None
    failures = asyncio.run(
        run_conformance(arguments.url, headers, verify_tls=not arguments.insecure, only=arguments.only)
    )
    for failure in failures:
        sys.stdout.write(f"{failure.case}\n    {failure.step}\n    {failure.why}\n")
    sys.stdout.write(f"{len(failures)} failed\n")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
