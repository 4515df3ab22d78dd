"""`serve` with a certificate, as a process: its two ports, its flags, its end."""

import asyncio
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.admission.reviews import limits, pod, review
from tests.admission.test_tls import write_pair
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.extender.objects import container, listed, node, quota
from tests.live.process_harness import refusal, serving, started
from tests.virtual_time import until

pytestmark = pytest.mark.real_time

_ASKS = pod(container("a", limits(memory="3000")), scheduler="default-scheduler")


def _flags(folder: Path, *more: str) -> list[str]:
    write_pair(folder)
    files = ["--tls-cert-file", str(folder / "tls.crt"), "--tls-private-key-file", str(folder / "tls.key")]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [*files, "--webhook-port", str(port), *more]


def _webhooks(flags: list[str]) -> aiohttp.ClientSession:
    """Yield a client of the webhook port that the flags name."""
    trust = ssl.create_default_context(cafile=str(Path(flags[1]).parent / "ca.crt"))
    url = f"https://127.0.0.1:{flags[flags.index('--webhook-port') + 1]}"
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(ssl=trust))


async def _ask(client: aiohttp.ClientSession, path: str, obj: dict[str, Any]) -> dict[str, Any]:
    async with client.post(path, json=review(obj)) as response:
        assert response.status == 200
        response_: dict[str, Any] = (await response.json())["response"]
        return response_


async def test_an_embedded_cluster_with_its_webhooks(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(listed(node("n1"), quota({"limits.nvidia.com/gpumem": "2000"}, "team")))
    flags = _flags(tmp_path, "--scheduler-name", "cards", "--near-miss", "warn")
    async with started("extender", "serve", "--port", "0", "--cluster", dump, *flags) as process:
        await process.listens()
        async with _webhooks(flags) as client:
            assert (await _ask(client, "/mutate", _ASKS))["patchType"] == "JSONPatch"
            asked = pod(container("a", limits(count="1", memory="3000")), scheduler="cards")
            denied = await _ask(client, "/validate", asked)
            assert denied["status"]["message"] == (
                "exceeded quota team/gpus: nvidia.com/gpumem: hard 2000, used 0, the pod adds 3000"
            )
            async with client.post("/bind", data=b"{}") as response:
                assert response.status == 404
        assert await process.stop() == 0


async def test_a_live_standby_answers_the_webhooks_and_stops_being_ready_first(tmp_path: Path) -> None:
    """The port is ready once the cluster is read, whether or not this replica leads."""
    async with ApiServer() as api:
        async with aiohttp.ClientSession(api.url) as session, session.post("/api/v1/nodes", json=node("n1")) as made:
            assert made.status == 201
        kubeconfig = write_kubeconfig(tmp_path / "kc", api.url)
        # There is no kube-scheduler whose Lease could be followed, so this replica stays a standby.
        flags = _flags(tmp_path, "--follow-lease", "--shutdown-delay", "2")
        async with serving(kubeconfig, *flags) as process, _webhooks(flags) as client:
            await _until_ready(client, 200)
            status, _ = await process.get("/readyz")
            assert status == 503
            assert (await _ask(client, "/validate", pod(container("a", limits(count="1", memory="5")))))["allowed"]
            process.send(signal.SIGTERM)
            await _until_ready(client, 503)
            # Requests are still answered until the endpoints are withdrawn.
            assert (await _ask(client, "/mutate", _ASKS))["allowed"]
            assert await process.end() == 0


async def _until_ready(client: aiohttp.ClientSession, status: int) -> None:
    async def has_status() -> bool:
        try:
            async with client.get("/readyz") as response:
                return response.status == status
        except aiohttp.ClientConnectorError:
            # The webhook port opens after the other one.
            return False

    await until(has_status)


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--tls-cert-file", "x"], "error: --tls-private-key-file: (absent): both files of a pair must be given"),
        (["--tls-private-key-file", "x"], "error: --tls-cert-file: (absent): both files of a pair must be given"),
        (
            ["--tls-cert-file", "/nowhere/c", "--tls-private-key-file", "/nowhere/k"],
            "error: --tls-cert-file, --tls-private-key-file: /nowhere/c, /nowhere/k: /nowhere/c: No such file",
        ),
        (["--scheduler-name", "No"], "No: must be a DNS subdomain"),
        (["--other-schedulers", "x"], "invalid choice: 'x'"),
    ],
)
async def test_wrong_flags_are_one_line(flags: list[str], said: str) -> None:
    assert said in await refusal("serve", "--port", "0", *flags)


async def test_a_webhook_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    flags = _flags(tmp_path)
    flags[flags.index("--webhook-port") + 1] = str(port)
    async with server:
        said = await refusal("serve", "--port", "0", *flags)
    assert said.startswith(f"error: --webhook-bind-address, --webhook-port: 127.0.0.1:{port}: ")
