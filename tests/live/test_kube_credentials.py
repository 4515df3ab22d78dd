"""Credentials that expire, certificates that are replaced, configurations that cannot be used.

It exists because a process that runs for months outlives its tokens, and because a user's mistake must be named. It
must not test kubernetes_asyncio beyond what the extender relies on. Invariant: every server here is a real one.
"""

import asyncio
import json
import ssl
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from extender.kube import connection
from extender.kube.client import Answer, ConnectError, KubeClient, Unknown
from extender.kube.connection import Connection
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.extender.objects import pod
from tests.live.harness import Kube, eventually
from tests.live.kube_harness import PODS, Handler, empty_list, scripted

pytestmark = pytest.mark.real_time

TLS = Path(__file__).parent / "tls"
WATCH = {"watch": "1"}
AUTHORITY = "clusters:\n- {name: c, cluster: {server: 'https://x', certificate-authority: nowhere.crt}}\n"
CONTEXT = "current-context: x\ncontexts:\n- {name: x, context: {cluster: c}}\n"


@asynccontextmanager
async def connected(kubeconfig: Path | None) -> AsyncIterator[KubeClient]:
    client = await KubeClient.connect(None if kubeconfig is None else str(kubeconfig))
    try:
        yield client
    finally:
        await client.close()


def config(path: Path, url: str, user: dict[str, Any], **cluster: str) -> Path:
    """Write a kubeconfig with any user."""
    value = {
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    return path


async def get(client: KubeClient, path: str = PODS, seconds: float = 10.0) -> Answer | Unknown:
    return await client.request("GET", path, timeout_seconds=seconds)


# -- tokens ---------------------------------------------------------------------------------------------------------


def exec_user(folder: Path, expiry: str | None = None) -> dict[str, Any]:
    """A user whose plugin gives out what is in the file `token`, and notes each call in the file `calls`."""
    status: dict[str, str] = {} if expiry is None else {"expirationTimestamp": expiry}
    script = folder / "plugin"
    script.write_text(
        f"""#!{sys.executable}
import json, pathlib
folder = pathlib.Path({str(folder)!r})
with (folder / "calls").open("a") as calls:
    calls.write("x")
status = {status!r} | {{"token": (folder / "token").read_text()}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
""",
        encoding="utf-8",
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}


def file_user(folder: Path) -> dict[str, Any]:
    """A user whose token is in the file `token`."""
    return {"tokenFile": str(folder / "token")}


def give(folder: Path, token: str) -> None:
    (folder / "token").write_text(token, encoding="utf-8")


@pytest.fixture(params=["exec", "exec, good for years", "file"])
def user(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    give(tmp_path, "one")
    kinds = {
        "exec": lambda: exec_user(tmp_path),
        "exec, good for years": lambda: exec_user(tmp_path, "2100-01-01T00:00:00Z"),
        "file": lambda: file_user(tmp_path),
    }
    return kinds[request.param]()


async def test_a_refused_token_is_renewed_and_the_request_repeated(tmp_path: Path, user: dict[str, Any]) -> None:
    async with ApiServer() as api:
        api.tokens.allow("one")
        async with connected(config(tmp_path / "kc", api.url, user)) as client:
            assert (await get(client)).ok
            api.tokens.revoke("one")
            api.tokens.allow("two")
            give(tmp_path, "two")
            body = json.dumps(pod("p")).encode()
            made = await client.request("POST", "/api/v1/namespaces/default/pods", body=body, timeout_seconds=30)
            assert made.status == 201


async def test_a_watch_renews_its_token_too(tmp_path: Path, user: dict[str, Any]) -> None:
    async with ApiServer() as api:
        api.tokens.allow("one")
        async with connected(config(tmp_path / "kc", api.url, user)) as client:
            api.tokens.revoke("one")
            api.tokens.allow("two")
            give(tmp_path, "two")
            async with aclosing(client.watch(PODS, WATCH, 30)) as lines:
                first = asyncio.ensure_future(anext(lines))
                await eventually(lambda: api.watches == 1)
                Kube(api).create(pod("p"))
                assert b'"ADDED"' in await first


async def test_many_refusals_at_once_are_one_renewal(tmp_path: Path) -> None:
    give(tmp_path, "one")
    async with ApiServer() as api:
        api.tokens.allow("one")
        async with connected(config(tmp_path / "kc", api.url, exec_user(tmp_path))) as client:
            api.tokens.revoke("one")
            api.tokens.allow("two")
            give(tmp_path, "two")
            answers = await asyncio.gather(*(get(client, seconds=30) for _ in range(40)))
            assert all(answer.ok for answer in answers)
            assert (tmp_path / "calls").read_text() == "xx"  # at the start, and once more


async def test_the_same_token_again_is_not_tried_again(tmp_path: Path, user: dict[str, Any]) -> None:
    async with ApiServer() as api:
        api.tokens.allow("one")
        async with connected(config(tmp_path / "kc", api.url, user)) as client:
            api.tokens.revoke("one")
            assert (await get(client)).status == 401
            assert client.requests == 1


async def test_a_plugin_that_breaks_leaves_the_401(tmp_path: Path) -> None:
    give(tmp_path, "one")
    async with ApiServer() as api:
        api.tokens.allow("one")
        async with connected(config(tmp_path / "kc", api.url, exec_user(tmp_path))) as client:
            api.tokens.revoke("one")
            (tmp_path / "plugin").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
            assert (await get(client)).status == 401


async def test_a_token_may_end_in_a_line_break(tmp_path: Path) -> None:
    give(tmp_path, "one\n")
    async with ApiServer() as api:
        api.tokens.allow("one")
        async with connected(config(tmp_path / "kc", api.url, file_user(tmp_path))) as client:
            assert (await get(client)).ok


async def test_a_refusal_without_credentials_stays_one(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.tokens.allow("one")
        async with connected(write_kubeconfig(tmp_path / "kc", api.url)) as client:
            assert (await get(client)).status == 401


async def test_a_service_account_reads_its_token_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    good = "one"

    async def handle(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        return web.Response(status=200 if seen[-1] == f"Bearer {good}" else 401)

    give(tmp_path, "one")
    async with tls_server(handle) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        monkeypatch.setattr(connection, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
        monkeypatch.setattr(connection, "SERVICE_CERT_FILENAME", str(TLS / "ca.crt"))
        async with connected(None) as client:
            assert (await get(client)).ok
            good = "two"
            give(tmp_path, "two")
            assert (await get(client)).ok
            # The file is empty for a moment while it is replaced: the present token stays.
            give(tmp_path, "")
            assert (await get(client)).ok
    assert seen == ["Bearer one", "Bearer one", "Bearer two", "Bearer two"]


# -- TLS ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def tls_server(handler: Handler, *, asks_certificate: bool = False) -> AsyncIterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(TLS / "ca.crt"))
    context.load_cert_chain(TLS / "server.crt", TLS / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED if asks_certificate else ssl.CERT_NONE
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def test_a_server_under_another_name_than_its_address(tmp_path: Path) -> None:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response()

    trusted = {"certificate-authority": str(TLS / "ca.crt")}
    async with tls_server(handle) as port:
        url = f"https://127.0.0.1:{port}"
        for name, works in (("kubernetes.test", True), ("another.test", False)):
            path = config(tmp_path / "kc", url, {}, **{**trusted, "tls-server-name": name})
            async with connected(path) as client:
                assert (await get(client)).ok is works
        async with connected(config(tmp_path / "kc", url, {})) as client:  # trusts the system's authorities only
            assert not (await get(client)).ok


async def test_a_client_certificate_that_is_replaced_is_used(tmp_path: Path) -> None:
    good = "client-1"

    def name_of(request: web.Request) -> str:
        assert request.transport is not None
        certificate = request.transport.get_extra_info("peercert")
        return str(dict(part[0] for part in certificate["subject"])["commonName"])

    async def handle(request: web.Request) -> web.StreamResponse:
        return web.Response(text=name_of(request), status=200 if name_of(request) == good else 401)

    def put(name: str) -> None:
        for kind in ("crt", "key"):
            (tmp_path / f"client.{kind}").write_bytes((TLS / f"{name}.{kind}").read_bytes())

    put("client-1")
    user = {"client-certificate": str(tmp_path / "client.crt"), "client-key": str(tmp_path / "client.key")}
    async with tls_server(handle, asks_certificate=True) as port:
        path = config(
            tmp_path / "kc", f"https://127.0.0.1:{port}", user, **{"certificate-authority": str(TLS / "ca.crt")}
        )
        async with connected(path) as client:
            for good in ("client-1", "client-2", "client-1"):
                put(good)
                answer = await get(client)
                assert isinstance(answer, Answer)
                assert (answer.status, answer.body) == (200, good.encode())


# -- configurations that cannot be used -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, why",
    [
        (None, "no such file"),
        ("", "not a configuration"),
        ("{", "expected"),
        ("[]", "not a configuration"),
        ("\x00\x01", "not allowed"),
        ("kind: Config\n", "current-context"),
        ("current-context: x\ncontexts: []\n", "contexts"),
        (f"{CONTEXT}clusters: []\n", "c"),
        (f"{CONTEXT}clusters:\n- {{name: c, cluster: {{}}}}\n", "not a configuration"),
        (f"{CONTEXT}clusters:\n- {{name: c, cluster: {{a: b}}}}\n", "server: .empty."),
        (f"{CONTEXT}clusters:\n- {{name: c, cluster: {{server: 'ftp://x'}}}}\n", "ftp://x"),
        (
            f"{CONTEXT}clusters:\n- {{name: c, cluster: {{server: 'https://x', certificate-authority: no.crt}}}}\n",
            "no.crt",
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used(
    tmp_path: Path, text: str | None, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kc"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConnectError, match=why) as error:
        await KubeClient.connect(str(path))
    assert str(error.value)
    assert capfd.readouterr() == ("", "")


async def test_a_plugin_that_is_not_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "nowhere")}}
    with pytest.raises(ConnectError, match="nowhere"):
        await KubeClient.connect(str(config(tmp_path / "kc", "http://127.0.0.1:1", user)))
    assert capfd.readouterr() == ("", "")


async def test_no_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConnectError, match="host/port"):
        await KubeClient.connect(None)


async def test_a_proxy_and_a_name_go_with_every_request(tmp_path: Path) -> None:
    path = config(tmp_path / "kc", "http://127.0.0.1:1", {}, **{"proxy-url": "http://127.0.0.1:2"})
    opened = await Connection.open(str(path))
    assert opened.options()["proxy"] == "http://127.0.0.1:2"
    await opened.close()


async def test_a_proxy_of_the_environment_gets_every_request_but_to_excepted_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    async def proxy(request: web.Request) -> web.Response:
        asked.append((str(request.url), request.headers.get("Proxy-Authorization")))
        return empty_list()

    path = config(tmp_path / "kc", "http://api.example:1", {"token": "one"})
    async with scripted(proxy) as address:
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.delenv("no_proxy", raising=False)
        async with connected(path) as client:
            assert (await get(client)).ok
        assert asked == [("http://api.example:1/api/v1/pods", None)]
        monkeypatch.setenv("no_proxy", ".example")
        async with connected(path) as client:
            assert isinstance(await get(client), Unknown)
        assert len(asked) == 1


async def test_a_netrc_file_is_not_asked_for_the_api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password secret\n", encoding="utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with ApiServer() as api:
        api.tokens.allow("one")
        async with connected(config(tmp_path / "kc", api.url, {"token": "one"})) as client:
            assert (await get(client)).ok
            async with aclosing(client.watch(PODS, WATCH, 30)) as lines:
                first = asyncio.ensure_future(anext(lines))
                await eventually(lambda: api.watches == 1)
                Kube(api).create(pod("p"))
                assert b'"ADDED"' in await first
