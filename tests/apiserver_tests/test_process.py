"""The server runs as a process of its own, and clients find and use it like any cluster."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio import config, watch

from benchmarks.processes import running
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.loading import read_dump
from tests.apiserver.server import ApiServer
from tests.apiserver_tests.helpers import Client, pod

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).resolve().parents[2]


def dump(count: int) -> list[dict[str, Any]]:
    pods = [pod(f"p{number}", namespace="ns", uid=f"uid-{number}") for number in range(count)]
    return [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}, *pods]


@pytest.fixture
def dumped(tmp_path: Path) -> Path:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": dump(5)}))
    return path


async def test_a_process_serves_a_dump(dumped: Path, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    arguments = ["tests.apiserver", "--port", "0", "--load", str(dumped), "--kubeconfig", str(path)]
    with running(arguments, ROOT) as process:
        url = f"http://{process.address.host}:{process.address.port}"
        assert yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"] == url
        async with aiohttp.ClientSession(url) as session:
            client = Client(session)
            items = (await client.ok("GET", "/api/v1/pods?limit=3"))["items"]
            assert [item["metadata"]["uid"] for item in items] == ["uid-0", "uid-1", "uid-2"]
            assert (await client.ok("GET", "/_test/state"))["objects"]["nodes"] == 1


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".yaml"])
def test_dumps_are_read_in_every_form(tmp_path: Path, suffix: str) -> None:
    path, objects = tmp_path / f"dump{suffix}", dump(2)
    if suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, objects)))
    elif suffix == ".json":
        path.write_text(json.dumps({"items": objects}))
    else:
        path.write_text(yaml.safe_dump_all(objects))
    assert list(read_dump(path)) == objects


async def test_kubernetes_asyncio_gets_along_with_it(server: ApiServer, tmp_path: Path) -> None:
    server.tokens.allow("secret")
    server.load(dump(3))
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.url, "secret")
    async with await config.new_client_from_config(str(kubeconfig)) as api:
        core = kubernetes.CoreV1Api(api)
        page = await core.list_namespaced_pod("ns", limit=2)
        rest = await core.list_namespaced_pod("ns", limit=2, _continue=page.metadata._continue)
        assert [item.metadata.name for item in page.items + rest.items] == ["p0", "p1", "p2"]
        version = page.metadata.resource_version
        await core.patch_namespaced_pod("p0", "ns", {"metadata": {"annotations": {"a": "b"}}})
        await core.delete_namespaced_pod("p1", "ns")
        seen = []
        async with watch.Watch() as stream:
            async for event in stream.stream(core.list_pod_for_all_namespaces, resource_version=version):
                seen.append((event["type"], event["object"].metadata.name))
                if len(seen) == 3:
                    break
        assert seen == [("MODIFIED", "p0"), ("MODIFIED", "p1"), ("DELETED", "p1")]


async def test_two_servers_in_one_loop_are_strangers(server: ApiServer) -> None:
    async with ApiServer() as other:
        server.load(dump(1))
        assert (server.url != other.url, len(other.store.tables[next(iter(other.store.tables))])) == (True, 0)


def test_a_wrong_dump_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text('{"items": [{"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}}]}')
    done = subprocess.run(
        [sys.executable, "-m", "tests.apiserver", "--load", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "error: kind: v1/Thing: not a resource of this server"


async def test_it_stops_when_it_is_told_to(dumped: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.apiserver", "--load", str(dumped), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().split()[-1]
    async with aiohttp.ClientSession(url) as session, session.get("/api/v1/pods?watch=1") as response:
        assert response.status == 200
        process.terminate()
        async with asyncio.timeout(5):
            assert await process.wait() == 0
