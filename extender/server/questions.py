"""The questions of /api/v1 other than whole lists: one node, one pod, why it waits, sums, the last decisions.

Why it exists: people rarely want a list of 10,000 nodes. It must not know kube-scheduler's verbs. Invariants: reading
changes nothing; work that takes longer than a few milliseconds is done in steps, between which other requests are
answered.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import orjson
from aiohttp import web

from accounting.answers import node_report, raw_reports
from accounting.pod import Pod
from extender.cluster import Cluster, checked_pod
from extender.convert import InputError, parse_json_manifests, pod_manifests
from extender.reports import (
    Usage,
    decision_entry,
    node_devices,
    options,
    pod_detail,
    summary_in_steps,
    usage_csv,
    usage_records,
    why_in_steps,
)
from extender.reports.shapes import Summary, UsageRecord
from extender.server.bodies import read_body
from extender.server.lists import Entries, ListQuery, Lists
from extender.server.openapi import openapi
from extender.server.turns import Turns
from extender.verbs import KEPT, Decision, Decisions

_Step = TypeVar("_Step")
_MOST_SIZES, _MOST_SIZE_DIGITS = 16, 9
_LARGEST = 2**63 - 1
_MOST_PODS = 100


class Questions:
    """Handlers over one cluster."""

    def __init__(
        self, cluster: Cluster, decisions: Decisions, turns: Turns, most_bytes: int, *, embedded: bool = True
    ) -> None:
        """`most_bytes`: the limit of a body of pods."""
        self._cluster = cluster
        self._turns = turns
        self._document = openapi(embedded=embedded)
        self._decisions = decisions
        self._lists = Lists(turns, lambda: (decisions.changes, decisions.repeats))
        self._lists_of_state = Lists(turns, lambda: cluster.list_version)
        self._most_bytes = most_bytes

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get("/api/v1/nodes/{node}", self.node),
            web.get("/api/v1/pods/{namespace}/{name}", self.pod),
            web.get("/api/v1/pods/{namespace}/{name}/why", self.why),
            web.post("/api/v1/what-if", self.what_if),
            web.get("/api/v1/summary", self.summary),
            web.get("/api/v1/options", self.options),
            web.get("/api/v1/usage", self.usage),
            web.get("/api/v1/usage/records", self.usage_records),
            web.get("/api/v1/decisions", self.decisions),
            web.get("/openapi.json", self.document),
        ]

    async def node(self, request: web.Request) -> web.Response:
        """One node with its cards."""
        name, cache = request.match_info["node"], self._cluster.cache
        if name not in cache.nodes and not any(True for _ in cache.pods_on(name)):
            return _answer({"error": f"node: {name}: not found"}, 404)
        raw = raw_reports(self._cluster.raw, name).get(name, ()) if self._cluster.settings.raw_keys else None
        return _answer(node_devices(name, node_report(cache, name), raw))

    async def pod(self, request: web.Request) -> web.Response:
        """One pod: what it holds and asks for, its phases, and the last decisions on it."""
        pod = self._named(request)
        if pod is None:
            return _no_pod(request)
        cluster = self._cluster
        return _answer(pod_detail(pod, cluster.record(pod), self._decisions.of_pod(pod.uid)))

    async def why(self, request: web.Request) -> web.Response:
        """Why a known pod waits, and what would have to change."""
        pod = self._named(request)
        if pod is None:
            return _no_pod(request)
        return _answer(await self._last(why_in_steps(self._cluster, pod)))

    async def what_if(self, request: web.Request) -> web.Response:
        """The same for pods that do not exist yet: Pods, or workloads with a template. Nothing is left behind."""
        try:
            pods = _posted(await read_body(request, self._most_bytes), self._cluster)
        except InputError as error:
            return _answer({"error": str(error)}, 400)
        return _answer([await self._last(why_in_steps(self._cluster, pod)) for pod in pods])

    async def summary(self, _request: web.Request) -> web.Response:
        """Sums over the cluster."""
        return _answer(await self._last(_summary_in_steps(self._cluster)))

    async def options(self, request: web.Request) -> web.Response:
        """What could still be placed; `?memory=` names share sizes in MiB, `?namespace=` whose budgets count."""
        sizes = []
        for text in filter(None, request.query.get("memory", "").split(",")):
            if not (text.isascii() and text.isdigit() and len(text) <= _MOST_SIZE_DIGITS and int(text)):
                return _answer({"error": f"memory: {text}: must be MiB from 1 to {10**_MOST_SIZE_DIGITS - 1}"}, 400)
            sizes.append(int(text))
        if len(sizes) > _MOST_SIZES:
            return _answer({"error": f"memory: {len(sizes)} sizes: must be at most {_MOST_SIZES}"}, 400)
        return _answer(options(self._cluster, sizes, request.query.get("namespace")))

    async def usage(self, request: web.Request) -> web.StreamResponse:
        """What every namespace holds and is charged for; `?namespace=` selects one."""
        try:
            query = ListQuery.of(request, ("namespace",))
        except InputError as error:
            return _answer({"error": str(error)}, 400)
        return await self._lists_of_state.send(request, query, lambda: self._namespaces(query.filters.get("namespace")))

    def _namespaces(self, namespace: str | None) -> Entries:
        counted = Usage(self._cluster, namespace)
        for _ in counted.steps():
            yield None
        for row in counted.rows():
            yield [row["namespace"]], {**row}

    async def usage_records(self, request: web.Request) -> web.StreamResponse:
        """What pods and VMs have had for how long; `?namespace=` of one namespace, `?format=csv` as CSV, whole."""
        try:
            query = ListQuery.of(request, ("namespace", "format"))
            form = _form(query)
        except InputError as error:
            return _answer({"error": str(error)}, 400)
        ledger = self._cluster.usage
        if ledger is None:
            return _answer({"error": "usage records: (none): are kept with --usage-records or --usage-file"}, 404)
        async for _ in self._turns.taken(ledger.steps()):
            pass
        rows = usage_records(ledger, query.filters.get("namespace"))
        if form == "csv":
            return await self._turns.send(request, usage_csv(rows), {"Content-Type": "text/csv"})
        # What is held now grows with time.
        return await self._lists_of_state.send(request, query, lambda: _records(rows), ledger.now_ns())

    async def decisions(self, request: web.Request) -> web.StreamResponse:
        """The last decisions, the newest first: of all pods, or with `?pod=NAMESPACE/NAME` of one."""
        try:
            query = ListQuery.of(request, ("pod",), KEPT)
        except InputError as error:
            return _answer({"error": str(error)}, 400)
        pod = query.filters.get("pod")
        found = self._decisions.newest() if pod is None else self._decisions.of_name(pod)
        return await self._lists.send(request, query, lambda: _in_places(found))

    async def document(self, _request: web.Request) -> web.Response:
        """Return the OpenAPI document of /api/v1."""
        return _answer(self._document)

    async def _last(self, steps: Iterator[_Step]) -> _Step:
        """Return the last step."""
        found = [batch[-1] async for batch in self._turns.taken(steps)]
        return found[-1]

    def _named(self, request: web.Request) -> Pod | None:
        return self._cluster.pod_named(request.match_info["namespace"], request.match_info["name"])


def _form(query: ListQuery) -> str:
    """Return the format of records. Raises `InputError`."""
    form = query.filters.get("format", "json")
    if form not in ("json", "csv"):
        raise InputError("format", form or "(empty)", "must be json or csv")
    if form == "csv" and (query.limit, query.after, query.fields) != (None, None, {}):
        raise InputError("format", form, "has neither pages nor fields")
    return form


def _records(rows: Iterable[UsageRecord | None]) -> Entries:
    """Yield records with the parts of their lines as places; see `usage_records`."""
    for row in rows:
        if row is None:
            yield None
            continue
        what = ("raw", row["raw_key"]) if row["raw_key"] else ("card", row["model"])
        yield [row["kind"], row["namespace"], row["name"], row["uid"], *what, row["phase"]], {**row}


def _summary_in_steps(cluster: Cluster) -> Iterator[Summary | None]:
    """Yield the summary as the last step."""
    waiting = yield from cluster.waiting_in_steps()
    yield None
    yield (yield from summary_in_steps(cluster, len(waiting)))


def _in_places(decisions: Iterable[Decision]) -> Entries:
    """Yield entries with their places: the newest has the largest number, and comes first."""
    for each in decisions:
        yield [f"{_LARGEST - each.number:019}"], {**decision_entry(each)}


def _posted(body: bytes, cluster: Cluster) -> list[Pod]:
    """Read the pods of a question. Raises `InputError`."""
    manifests = list(parse_json_manifests(body, "body", "pod")) if body.strip() else []
    pods = [checked_pod(each, cluster.settings) for each in pod_manifests(manifests)]
    if not 0 < len(pods) <= _MOST_PODS:
        raise InputError("body", f"{len(pods)} pods", f"must be 1 to {_MOST_PODS} Pods, or workloads with a template")
    return pods


def _no_pod(request: web.Request) -> web.Response:
    name = "{namespace}/{name}".format(**request.match_info)
    return _answer({"error": f"pod: {name}: not found"}, 404)


def _answer(value: object, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")
