"""The lists of /api/v1 and the embedded cluster's pod API.

It must not know kube-scheduler's verbs. Invariant: reading changes nothing; a body that cannot be used changes nothing
and gets 400 with the field, the value and why.
"""

from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any

from aiohttp import web

from accounting.pod import Pod
from accounting.quota import Limit
from extender.cluster import Cluster, check_requests, checked_pod, concerns_cards
from extender.convert import InputError, parse_json_manifests
from extender.reports import VerifyLists, claim_entries, node_entries, pod_entries, render
from extender.server.bodies import read_body
from extender.server.lists import ListQuery, Lists
from extender.server.origin import check_host, check_json
from extender.server.turns import Turns, encoded, json_array, json_object

Json = dict[str, Any]
Compare = Callable[[], Awaitable[Json]]
"""Says where a live cluster differs from the API server, in a bounded time."""


class Api:
    """Handlers over one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        turns: Turns,
        most_bytes: int,
        *,
        embedded: bool = True,
        writes_files: bool = False,
        compare: Compare | None = None,
    ) -> None:
        """`most_bytes`: of a posted pod. `writes_files`: requests may change pods that came from files."""
        self._cluster = cluster
        self._most_bytes = most_bytes
        self._embedded = embedded
        self._writes_files = writes_files
        self._compare = compare
        self._turns = turns
        self._lists = Lists(turns, lambda: cluster.list_version)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        changing = [
            web.post("/api/v1/pods", self.post_pod),
            web.delete("/api/v1/pods/{namespace}/{name}", self.delete_pod),
        ]
        return [
            *(changing if self._embedded else ()),
            web.get("/api/v1/pods", self.pods),
            web.get("/api/v1/nodes", self.nodes),
            web.get("/api/v1/claims", self.claims),
            web.get("/api/v1/verify", self.verify),
            web.get("/api/v1/quotas", self.quotas),
        ]

    async def pods(self, request: web.Request) -> web.StreamResponse:
        """Every pod that asks for or holds cards; `?node=` and `?namespace=` leave some of them."""
        try:
            query = ListQuery.of(request, ("node", "namespace"))
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        node, namespace = query.filters.get("node"), query.filters.get("namespace")

        def wanted(pod: Pod) -> bool:
            return concerns_cards(pod) and node in (None, pod.node) and namespace in (None, pod.namespace)

        return await self._lists.send(request, query, lambda: pod_entries(self._cluster, wanted), _pod_key)

    async def nodes(self, request: web.Request) -> web.StreamResponse:
        """Every node with its cards; `?node=` leaves one, `?model=` those with a card of a model."""
        try:
            query = ListQuery.of(request, ("node", "model"))
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        return await self._lists.send(request, query, lambda: self._nodes(query), _node_key)

    async def claims(self, request: web.Request) -> web.StreamResponse:
        """Every DRA claim that holds cards; `?node=` and `?namespace=` leave some of them."""
        try:
            query = ListQuery.of(request, ("node", "namespace"))
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        node, namespace = query.filters.get("node"), query.filters.get("namespace")
        return await self._lists.send(request, query, lambda: claim_entries(self._cluster, node, namespace), _claim_key)

    def _nodes(self, query: ListQuery) -> Iterator[Json | None]:
        node, model = query.filters.get("node"), query.filters.get("model")
        for entry in node_entries(self._cluster):
            is_wanted = entry is not None and node in (None, entry["node"])
            has_model = entry is not None and (model is None or any(each["type"] == model for each in entry["devices"]))
            yield entry if is_wanted and has_model else None

    async def verify(self, request: web.Request) -> web.StreamResponse:
        """Every card and everything that is wrong; on a live cluster, also where it differs from the API server."""
        more = {} if self._compare is None else await self._compare()
        parts = {name: json_array(entries) for name, entries in VerifyLists(self._cluster).by_name()}
        parts |= {key: iter((encoded(value),)) for key, value in more.items()}
        return await self._turns.send(request, json_object(parts), {"Vary": "Accept-Encoding"})

    async def quotas(self, request: web.Request) -> web.StreamResponse:
        """Every limit on a managed resource, what is used, and what the API server itself charges.

        With `?namespace=` those of one namespace, each with the reasons why the two charges differ; over all namespaces
        that would be a look at every pod.
        """
        namespace = request.query.get("namespace")
        return await self._lists.send(request, ListQuery(), lambda: self._quotas(namespace), _quota_key)

    def _quotas(self, namespace: str | None) -> Iterator[Json | None]:
        return quota_rows(self._cluster) if namespace is None else explained_quota_rows(self._cluster, namespace)

    async def post_pod(self, request: web.Request) -> web.Response:
        """Create a pod, or replace it with its status."""
        check_host(request)
        check_json(request)
        try:
            pod = posted_pod(await read_body(request, self._most_bytes), self._cluster)
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        if self._is_read_only(pod):
            return _read_only(pod)
        known = self._cluster.pod(pod.uid)
        conflict = None if known is None else _conflict(pod, known)
        if conflict is not None:
            return json_response({"error": conflict}, status=409)
        kept = self._cluster.put_pod(pod)
        return json_response(render.pod_entry(kept, self._cluster.record(kept)), status=201 if known is None else 200)

    async def delete_pod(self, request: web.Request) -> web.Response:
        """Delete a pod and release what it holds."""
        check_host(request)
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        pod = self._cluster.pod_named(namespace, name)
        if pod is None:
            return json_response({"error": f"pod: {namespace}/{name}: not found"}, status=404)
        if self._is_read_only(pod):
            return _read_only(pod)
        self._cluster.delete_pod(pod.uid)
        return json_response({"deleted": pod.key, "uid": pod.uid})

    def _is_read_only(self, pod: Pod) -> bool:
        """Whether a pod, or the one that it would replace, came from a file that requests may not overrule."""
        named = self._cluster.pod_named(pod.namespace, pod.name)
        uids = {pod.uid} if named is None else {pod.uid, named.uid}
        return not self._writes_files and any(map(self._cluster.is_from_files, uids))


def _pod_key(entry: Json) -> list[str]:
    return [*entry["pod"].split("/", 1), entry["uid"]]


def _claim_key(entry: Json) -> list[str]:
    return [*entry["claim"].split("/", 1), entry["uid"]]


def _node_key(entry: Json) -> list[str]:
    return [entry["node"]]


def _quota_key(entry: Json) -> list[str]:
    return [entry["namespace"], entry["resource"]]


def posted_pod(body: bytes, cluster: Cluster) -> Pod:
    """Read one Pod from a body. Raises `InputError`."""
    manifests = list(parse_json_manifests(body, "body", "pod")) if body.strip() else []
    if len(manifests) != 1 or manifests[0].kind != "Pod":
        raise InputError("body", f"{len(manifests)} objects", "must be one Pod")
    pod = checked_pod(manifests[0], cluster.settings)
    check_requests(pod)
    return pod


def _read_only(pod: Pod) -> web.Response:
    why = f"pod: {pod.key}: came from a file, which requests may change with --allow-writes only"
    return json_response({"error": why}, status=HTTPStatus.FORBIDDEN)


def _conflict(pod: Pod, known: Pod) -> str | None:
    """Return what a pod that is bound cannot change, as on an API server."""
    if known.node is None:
        return None
    if pod.node not in (None, known.node):
        return f"spec.nodeName: {pod.node}: pod {known.key} is bound to node {known.node}"
    count, bound_with = len(pod.containers), len(known.containers)
    return None if count == bound_with else f"spec.containers: {count}: pod {known.key} is bound with {bound_with}"


def verify_report(cluster: Cluster) -> Json:
    """Return every card and every problem."""
    lists = VerifyLists(cluster)
    return {name: [each for each in entries if each is not None] for name, entries in lists.by_name()}


def quota_rows(cluster: Cluster) -> Iterator[Json]:
    """Yield one row per namespace, limited resource and selector, sorted; those of quotas without scopes first."""
    for namespace in cluster.quotas.namespaces():
        for limit in cluster.quotas.limits_of(namespace):
            yield quota_row(cluster, limit)


def explained_quota_rows(cluster: Cluster, namespace: str) -> Iterator[Json | None]:
    """Yield the rows of a namespace, with why the two charges differ; a None is a step without a row."""
    for limit in cluster.quotas.limits_of(namespace):
        why = yield from cluster.charges.why_they_differ(limit, cluster.record)
        yield quota_row(cluster, limit) | {"differs": why}


def quota_row(cluster: Cluster, limit: Limit) -> Json:
    """Return the row of one limit."""
    return render.quota_row(limit, cluster.charges.used(limit), cluster.charges.by_api(limit))


def json_response(value: object, status: int = 200) -> web.Response:
    """Return a JSON response."""
    return web.Response(body=encoded(value), status=status, content_type="application/json")
