"""Which clients each port lets in: client certificates, bearer tokens, loopback.

They exist because the verbs book cards and the lists name every pod. Certificates are real, tokens are reviewed by the
API server of the tests.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from kubernetes_asyncio.client import Configuration

from extender.config import ServerSettings
from extender.kube.client import KubeClient
from extender.kube.connection import Connection
from extender.kube.reviews import Access, Reviews
from extender.security.tls import ServingCertificate
from extender.server.app import API_APP, WEBHOOK_APP, make_app
from extender.server.ports import PortName, start
from tests.admission.reviews import limits, pod, review
from tests.admission.test_tls import write_pair
from tests.apiserver.server import ApiServer
from tests.extender.objects import container, node
from tests.extender.serving import make_cluster
from tests.live.process_harness import refusal, started

_CLIENTS = Path(__file__).parents[1] / "live" / "tls"
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - the flag is under test
_READER = {"username": "system:serviceaccount:monitoring:prometheus", "uid": "u-1", "groups": ["system:authenticated"]}


@asynccontextmanager
async def api_server() -> AsyncIterator[tuple[ApiServer, KubeClient]]:
    async with ApiServer() as server:
        configuration = Configuration()
        configuration.host = server.url
        client = KubeClient(Connection(configuration))
        try:
            yield server, client
        finally:
            await client.close()


@asynccontextmanager
async def api_port(client: KubeClient | None) -> AsyncIterator[aiohttp.ClientSession]:
    """Run the port of the lists alone, and a client of it."""
    settings = ServerSettings(port=0)
    app = make_app(make_cluster(node("n1")), settings, may=None if client is None else Reviews(client).may)
    listener, number = await start(app[API_APP], settings, None, PortName.API)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{number}") as session:
            yield session
    finally:
        await listener.cleanup()


async def _get(session: aiohttp.ClientSession, path: str, token: str | None = None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with session.get(path, headers=headers) as response:
        assert (response.status == 401) is ("WWW-Authenticate" in response.headers)
        return response.status


@pytest.fixture
def from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests have loopback only, so every client counts as one from elsewhere."""
    monkeypatch.setattr("extender.server.access._is_from_loopback", lambda _request: False)


async def test_loopback_reads_freely_and_finds_no_verbs_there() -> None:
    async with api_port(None) as session:
        for path in ("/", "/metrics", "/api/v1/nodes", "/livez", "/readyz"):
            assert await _get(session, path) == 200
        async with session.post("/filter", data=b"{}") as response:
            assert response.status == 404


@pytest.mark.usefixtures("from_elsewhere")
async def test_from_elsewhere_a_token_is_reviewed_once() -> None:
    async with api_server() as (server, client), api_port(client) as session:
        server.reviews.users["good"] = _READER
        server.reviews.allowed.add((str(_READER["username"]), "get", "/metrics"))
        assert await _get(session, "/livez") == 200
        assert [await _get(session, "/metrics", token) for token in (None, "", "bad", "good", "good")] == [
            401,
            401,
            401,
            200,
            200,
        ]
        assert await _get(session, "/api/v1/pods", "good") == 403
        assert server.requests.count(resource="tokenreviews") == 3
        assert server.reviews.asked[2]["user"] == _READER["username"]
        assert server.reviews.asked[2]["groups"] == _READER["groups"]
        assert server.reviews.asked[2]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


@pytest.mark.usefixtures("from_elsewhere")
async def test_without_an_api_server_nobody_is_let_in() -> None:
    async with api_server() as (server, client), api_port(client) as session:
        server.reviews.users["good"] = _READER
        await server.stop()
        assert await _get(session, "/metrics", "good") == 503
    async with api_port(None) as session:
        assert await _get(session, "/metrics", "good") == 401


async def test_what_is_remembered_ends_and_is_bounded() -> None:
    now = 0.0
    async with api_server() as (server, client):
        reviews = Reviews(client, lambda: now)
        server.reviews.users["good"] = _READER
        server.reviews.allowed.add((str(_READER["username"]), "get", "/metrics"))
        assert await reviews.may("good", "get", "/metrics") is Access.ALLOWED
        server.reviews.users.clear()
        now = 59.0
        assert await reviews.may("good", "get", "/metrics") is Access.ALLOWED
        now = 61.0
        assert await reviews.may("good", "get", "/metrics") is Access.UNAUTHENTICATED
        for number in range(1100):
            await reviews.may(f"made up {number}", "get", "/metrics")
        assert len(reviews._kept) == 1024
        assert not any("made up" in str(question) for question in reviews._kept)


def _trust(folder: Path, client: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    if client is not None:
        context.load_cert_chain(_CLIENTS / f"{client}.crt", _CLIENTS / f"{client}.key")
    return context


@pytest.mark.parametrize("name", [PortName.VERBS, PortName.WEBHOOKS])
async def test_a_client_certificate_is_needed_but_for_probes(tmp_path: Path, name: PortName) -> None:
    write_pair(tmp_path)
    authority = str(_CLIENTS / "ca.crt")
    settings = ServerSettings(port=0, webhook_port=0, verbs_client_ca=authority, webhook_client_ca=authority)
    certificate = ServingCertificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"), authority)
    app = make_app(make_cluster(node("n1")), settings)
    served = app if name is PortName.VERBS else app[WEBHOOK_APP]
    path = "/filter" if name is PortName.VERBS else "/validate"
    listener, number = await start(served, settings, certificate.context, name)
    body = review(pod(container("a", limits(memory="5"))))
    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{number}") as session:
            for client, status in ((None, 403), ("client-1", 200), (None, 403), ("client-2", 200)):
                trust = _trust(tmp_path, client)
                async with session.post(path, json=body, ssl=trust) as response:
                    assert response.status == status
                async with session.get("/livez", ssl=trust) as response:
                    assert response.status == 200
            strange = _trust(tmp_path)
            strange.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
            with pytest.raises(aiohttp.ClientError):
                await session.post(path, json=body, ssl=strange)
    finally:
        await listener.cleanup()


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--verbs-client-ca", "x"], "error: --verbs-client-ca: x: needs --tls-cert-file and --tls-private-key-file"),
        (["--webhook-client-ca", "x"], "error: --webhook-client-ca: x: needs --tls-cert-file"),
        (
            ["--api-port", "0", "--api-bind-address", _EVERYWHERE],
            "error: --api-bind-address: 0.0.0.0: an embedded cluster",
        ),
        (
            ["--in-cluster", "--api-port", "0", "--api-bind-address", _EVERYWHERE],
            "error: --api-bind-address: 0.0.0.0: tokens must not travel in plain text",
        ),
    ],
)
async def test_ports_that_could_not_ask_who_is_there_are_refused(flags: list[str], said: str) -> None:
    assert (await refusal("serve", "--port", "0", *flags)).startswith(said)


async def test_verbs_beyond_loopback_are_warned_about(tmp_path: Path) -> None:
    async with started("extender", "serve", "--port", "0", "--api-port", "0", "--bind-address", _EVERYWHERE) as process:
        await process.listens()
        assert "verbs are open" in process.log
        assert await process.stop() == 0
