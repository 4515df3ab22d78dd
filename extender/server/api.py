"""The lists of /api/v1 and the embedded cluster's pod API.

It must not know kube-scheduler's verbs. Invariants: reading changes nothing; a body that cannot be used changes nothing
and gets 400 with the field, the value and why.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from aiohttp import web

from accounting.pod import Pod
from accounting.quota import Limit
from extender.cluster import Cluster, check_requests, checked_pod, concerns_cards
from extender.convert import InputError, parse_json_manifests
from extender.reports import (
    VerifyLists,
    card_marks,
    claim_entries,
    hold_entries,
    node_entries,
    pod_entries,
    render,
    wanted_marks,
)
from extender.server.bodies import read_body
from extender.server.lists import ListQuery, Lists, placed
from extender.server.origin import check_host, check_json
from extender.server.turns import Turns, encoded

Json = dict[str, Any]
Compare = Callable[[], Awaitable[Json]]
"""Says where a live cluster differs from the API server, in a bounded time."""
COMPARED = ("differences", "comparison")
"""The fields that it adds."""


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
        """`most_bytes`: the limit of a posted pod. `writes_files`: requests may change pods that came from files."""
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
            web.get("/api/v1/holds", self.holds),
            web.get("/api/v1/verify", self.verify),
            web.get("/api/v1/quotas", self.quotas),
        ]

    async def pods(self, request: web.Request) -> web.StreamResponse:
        """Every pod that asks for or holds cards; `?node=` and `?namespace=` select some of them."""
        try:
            query = ListQuery.of(request, ("node", "namespace"))
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        node, namespace = query.filters.get("node"), query.filters.get("namespace")

        def wanted(pod: Pod) -> bool:
            return concerns_cards(pod) and node in (None, pod.node) and namespace in (None, pod.namespace)

        return await self._lists.send(request, query, lambda: placed(pod_entries(self._cluster, wanted), _pod_place))

    async def nodes(self, request: web.Request) -> web.StreamResponse:
        """Every node with its cards; `?node=` leaves one, `?model=` and `?problem=` those with such a card."""
        try:
            query = ListQuery.of(request, ("node", "model", "problem"))
            wanted = wanted_marks(query.filters.get("problem"))
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        return await self._lists.send(request, query, lambda: placed(self._nodes(query, wanted), _node_place))

    async def claims(self, request: web.Request) -> web.StreamResponse:
        """Every DRA claim that holds cards; `?node=` and `?namespace=` leave some of them."""
        try:
            query = ListQuery.of(request, ("node", "namespace"))
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        node, namespace = query.filters.get("node"), query.filters.get("namespace")
        return await self._lists.send(
            request, query, lambda: placed(claim_entries(self._cluster, node, namespace), _claim_place)
        )

    async def holds(self, request: web.Request) -> web.StreamResponse:
        """What is held for each VM; `?node=` and `?namespace=` leave some of it."""
        try:
            query = ListQuery.of(request, ("node", "namespace"))
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        node, namespace = query.filters.get("node"), query.filters.get("namespace")
        return await self._lists.send(
            request, query, lambda: placed(hold_entries(self._cluster, node, namespace), _hold_place)
        )

    def _nodes(self, query: ListQuery, marks: frozenset[str] | None) -> Iterator[Json | None]:
        node, model = query.filters.get("node"), query.filters.get("model")

        def has_card(entry: Json) -> bool:
            return (model is None and marks is None) or any(
                model in (None, card["type"]) and (marks is None or not marks.isdisjoint(card_marks(card)))
                for card in entry["devices"]
            )

        for entry in node_entries(self._cluster):
            yield entry if entry is not None and node in (None, entry["node"]) and has_card(entry) else None

    async def verify(self, request: web.Request) -> web.StreamResponse:
        """Every card and everything that is wrong; on a live cluster, also where it differs from the API server.

        The comparison reads everything from the API server, so it comes with the first page only, and only if its
        fields are wanted.
        """
        try:
            query = ListQuery.of(request)
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        compared = query.after is None and any(map(query.wants, COMPARED))
        more = await self._compare() if self._compare is not None and compared else {}
        more = {name: value for name, value in more.items() if query.wants(name)}
        return await self._lists.send_parts(request, query, lambda: VerifyLists(self._cluster).in_places(), more)

    async def quotas(self, request: web.Request) -> web.StreamResponse:
        """Every limit on a managed resource, what is used, and what the API server itself charges.

        `?namespace=` selects one namespace and adds why the two charges differ; for all namespaces that would cost a
        look at every pod.
        """
        try:
            query = ListQuery.of(request, ("namespace",))
        except InputError as error:
            return json_response({"error": str(error)}, status=400)
        namespace = query.filters.get("namespace")
        return await self._lists.send(request, query, lambda: placed(self._quotas(namespace), _quota_place))

    def _quotas(self, namespace: str | None) -> Iterator[Json | None]:
        return quota_rows(self._cluster) if namespace is None else explained_quota_rows(self._cluster, namespace)

    async def post_pod(self, request: web.Request) -> web.Response:
        """Create a pod, or replace it, status included."""
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
        """Whether a pod, or the one that it would replace, came from a file and so may not be changed by requests."""
        named = self._cluster.pod_named(pod.namespace, pod.name)
        uids = {pod.uid} if named is None else {pod.uid, named.uid}
        return not self._writes_files and any(map(self._cluster.is_from_files, uids))


def _pod_place(entry: Json) -> list[str]:
    return [*entry["pod"].split("/", 1), entry["uid"]]


def _hold_place(entry: Json) -> list[str]:
    return str(entry["vmi"]).split("/", 1)


def _claim_place(entry: Json) -> list[str]:
    return [*entry["claim"].split("/", 1), entry["uid"]]


def _node_place(entry: Json) -> list[str]:
    return [entry["node"]]


def _quota_place(entry: Json) -> list[str]:
    return [entry["namespace"], _scopes(entry["scopes"]), entry["resource"]]


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
    """Return the parts that a bound pod cannot change, as on an API server."""
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
        for limit in _limits(cluster, namespace):
            yield quota_row(cluster, limit)


def explained_quota_rows(cluster: Cluster, namespace: str) -> Iterator[Json | None]:
    """Yield the rows of a namespace, with why the two charges differ; a None is a step without a row."""
    for limit in _limits(cluster, namespace):
        why = yield from cluster.charges.why_they_differ(limit, cluster.record)
        yield quota_row(cluster, limit) | {"differs": why}


def _limits(cluster: Cluster, namespace: str) -> list[Limit]:
    """Return a namespace's limits in the order of `_quota_place`."""
    return sorted(cluster.quotas.limits_of(namespace), key=lambda limit: (_scopes(limit.selector), limit.resource))


def _scopes(texts: Iterable[object]) -> str:
    return ", ".join(map(str, texts))


def quota_row(cluster: Cluster, limit: Limit) -> Json:
    """Return the row of one limit."""
    return render.quota_row(limit, cluster.charges.used(limit), cluster.charges.by_api(limit))


def json_response(value: object, status: int = 200) -> web.Response:
    """Return a JSON response."""
    return web.Response(body=encoded(value), status=status, content_type="application/json")
