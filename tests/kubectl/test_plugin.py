"""The plugin against a real extender, by its address and through a service proxy.

They exist because its tables and sentences are what people on call read first. They must not know how they are laid
out beyond the words. Invariant: JSON is the API's answer; nothing is printed when something went wrong but one line.
"""

import argparse
import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
import yaml
from aiohttp import web

from extender.kubectl import complete
from extender.kubectl.options import parser
from tests.extender import processes
from tests.extender.dra import gpu, resource_claim, resource_slice, result
from tests.extender.objects import asks, bound, card, container, node, pod, quota
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.serving import Client, make_cluster, serving
from tests.extender.vmis import K, raw_node, units_of, vmi
from tests.forked import Child

OBJECTS = [
    node("n1", 2),
    node("n2"),
    bound("holder", "n1", "GPU-n1-0", 900, cores=20),
    bound("lost", "n2", "GPU-lost", 10, namespace="team"),
    pod("waits", [container("main", asks(2, 500))]),
    quota({"limits.nvidia.com/gpumem": "4000"}),
]
PREFIX = "/api/v1/namespaces/kube-system/services/http:gpu-extender:8888/proxy"
MODULE = "extender.kubectl"


class Said(NamedTuple):
    status: int
    out: str
    err: str

    def rows(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.out.splitlines()]


async def run(*arguments: str, stdin: bytes = b"", **environment: str) -> Said:
    ran = await asyncio.to_thread(processes.run, *arguments, stdin=stdin, module=MODULE, env=environment)
    return Said(ran.status, ran.out.decode(), ran.err)


async def ask(client: Client, *arguments: str, stdin: bytes = b"") -> Said:
    return await run(*arguments, "--server", client.url, stdin=stdin)


async def test_top_shows_nodes_and_pods_as_tables() -> None:
    async with serving(*OBJECTS) as client:
        nodes = await ask(client, "top", "nodes")
        wide = await ask(client, "top", "nodes", "-o", "wide")
        wrong = await ask(client, "top", "nodes", "--problem", "orphaned")
        pods = await ask(client, "top", "pods")
        of_team = await ask(client, "top", "pods", "-n", "team")
        on_node = await ask(client, "top", "pods", "--node", "n1")
        none = await ask(client, "top", "pods", "-n", "nobody")
    assert nodes.rows() == [
        ["NODE", "CARDS", "MEMORY", "MEMORY%", "CORES%", "SLOTS", "PODS", "CLAIMS", "VMIS", "STATE"],
        ["n1", "2", "900Mi/2000Mi", "45%", "10%", "1/20", "1", "0", "0", "ok"],
        ["n2", "2", "10Mi/1000Mi", "1%", "0%", "1/10", "1", "0", "0", "orphaned,", "over-committed"],
    ]
    assert "MODELS" in wide.out
    assert [row[0] for row in wrong.rows()] == ["NODE", "n2"]
    assert [row[1] for row in pods.rows()] == ["NAME", "holder", "waits", "lost"]
    assert pods.rows()[2][2] == "Waiting"
    assert [row[1] for row in of_team.rows()] == ["NAME", "lost"]
    assert [row[1] for row in on_node.rows()] == ["NAME", "holder"]
    assert none.out == "No pods found.\n"
    assert all("\x1b" not in said.out for said in (nodes, wide, pods))


async def test_json_and_yaml_are_the_answer_of_the_api() -> None:
    async with serving(*OBJECTS) as client:
        said = await ask(client, "top", "nodes", "-o", "json")
        assert json.loads(said.out) == await client.get("/api/v1/nodes")
        said = await ask(client, "usage", "-o", "yaml")
        assert yaml.safe_load(said.out) == await client.get("/api/v1/usage")
        said = await ask(client, "why", "waits", "-n", "default", "-o", "json")
        assert json.loads(said.out) == await client.get("/api/v1/pods/default/waits/why")


async def test_why_and_what_if_say_what_would_have_to_change(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(yaml.safe_dump(pod("small", [container("main", asks(1, 50))])))
    large_pod = json.dumps(pod("large", [container("main", asks(1, 3000))])).encode()
    async with serving(*OBJECTS) as client:
        why = await ask(client, "why", "waits", "-n", "default")
        small = await ask(client, "what-if", "-f", str(manifest))
        large = await ask(client, "what-if", "-f", "-", stdin=large_pod)
        missing = await ask(client, "why", "nobody", "-n", "default")
        unreadable = await ask(client, "what-if", "-f", str(tmp_path / "none"))
    assert why.status == 0
    assert "app main asks for 2 cards, 500 MiB each" in why.out
    assert "n1 lacks 400 MiB on GPU-n1-0 for container main; the pod fits once default/holder ends" in why.out
    assert ["1/2", "InsufficientMemory", "n1"] in why.rows()
    assert small.status == 0
    assert "would go to n" in small.out
    assert large.status == 1
    assert "no node would take it even with every pod gone" in large.out
    assert (missing.status, missing.out, missing.err.count("\n")) == (2, "", 1)
    assert "404 pod: default/nobody: not found" in missing.err
    assert (unreadable.status, unreadable.err.count("\n")) == (2, 1)


async def test_verify_and_usage() -> None:
    async with serving(*OBJECTS) as client:
        whole, problems = await ask(client, "verify"), await ask(client, "verify", "--problems")
        usage = await ask(client, "usage")
        await client.delete("lost", "team")
        clean = await ask(client, "verify", "--problems")
    assert (whole.status, problems.status, clean.status, clean.out) == (1, 1, 0, "No problems.\n")
    assert "OrphanedDevice" in problems.out
    assert "GPU-n1-1" in whole.out
    assert "GPU-n1-1" not in problems.out
    assert ["default", "1", "1", "900Mi", "20", "1", "gpumem", "900/4000"] in usage.rows()


async def test_holders_other_than_pods_have_their_kind_and_name() -> None:
    claimed = node("n1", [card("GPU-a", memory=24576)])
    claimed["status"] = raw_node(units=2)["status"]
    cluster = make_raw_cluster(
        claimed,
        resource_slice(gpu("gpu-0", "GPU-a")),
        resource_claim("c", result("gpu-0")),
        vmi("a", units=3),
        budgets={("default", K): 4},
    )
    async with serving(cluster=cluster) as client:
        nodes = await ask(client, "top", "nodes")
        wide = await ask(client, "top", "nodes", "-o", "wide")
        verify = await ask(client, "verify", "-o", "wide")
        usage = await ask(client, "usage")
        why = await ask(
            client, "what-if", "-f", "-", stdin=json.dumps(pod("q", [container("x", units_of(1))])).encode()
        )
    assert nodes.rows()[1] == ["n1", "1", "24Gi/24Gi", "100%", "100%", "10/10", "0", "1", "1", "over-committed"]
    short = K.rpartition("/")[2]
    assert f"3/2 {short}" in wide.out
    assert "claim default/c" in verify.out
    assert "vmi default/a 3" in verify.out
    assert f"{short} 3/4" in usage.out
    assert "vmi default/a has devices there" in why.out


async def test_usage_records_are_shown_as_a_table_and_as_they_came() -> None:
    now = 1_700_000_000
    cluster = make_cluster(*OBJECTS)
    cluster.keep_usage((), lambda: now * 10**9)
    async with serving(cluster=cluster) as client:
        now += 10
        table = await ask(client, "usage", "--records")
        of_team = await ask(client, "usage", "--records", "-n", "team", "-o", "wide")
        nobody = await ask(client, "usage", "--records", "-n", "nobody")
        as_json = await ask(client, "usage", "--records", "-o", "json")
        answer = await client.get("/api/v1/usage/records")
    async with serving(*OBJECTS) as client:
        without = await ask(client, "usage", "--records")
    head, holder, lost = table.out.splitlines()
    assert head.split()[:5] == ["NAMESPACE", "KIND", "NAME", "WHAT", "PHASE"]
    assert holder.split()[:3] == ["default", "pod", "holder"]
    assert holder.split()[-6:] == ["steady", "0", "10", "9000", "200", "yes"]
    assert lost.split()[-6:] == ["steady", "0", "10", "100", "0", "yes"]
    assert (len(of_team.out.splitlines()), "uid-lost" in of_team.out, "2023-11-14T22:13:20Z" in of_team.out) == (
        2,
        True,
        True,
    )
    assert nobody.out == "No records.\n"
    assert json.loads(as_json.out) == answer
    assert (without.status, without.out, without.err.count("\n")) == (2, "", 1)
    assert "--usage-records" in without.err


async def test_every_table_has_its_three_formats_and_a_wide_one() -> None:
    cluster = make_cluster(*OBJECTS)
    cluster.keep_usage()
    manifest = json.dumps(pod("small", [container("main", asks(1, 50))])).encode()
    commands = (
        *(["top", "nodes"], ["top", "pods"], ["why", "waits", "-n", "default"], ["what-if", "-f", "-"]),
        *(["verify"], ["verify", "--problems"], ["usage"], ["usage", "--records"]),
    )
    async with serving(cluster=cluster) as client:
        for command in commands:
            table, wide, as_json, as_yaml = [
                await ask(client, *command, "-o", form, stdin=manifest) for form in ("table", "wide", "json", "yaml")
            ]
            assert table.status == wide.status == as_json.status == as_yaml.status == (command[0] == "verify")
            assert len(wide.out) >= len(table.out) > 0
            read = json.loads(as_json.out)
            assert read
            # What is held grows with time.
            assert "--records" in command or yaml.safe_load(as_yaml.out) == read


async def test_it_watches_until_it_is_interrupted() -> None:
    async with serving(*OBJECTS) as client:
        child = await asyncio.to_thread(Child, MODULE, ["top", "pods", "-w", "--server", client.url])
        try:
            first = [await asyncio.to_thread(child.stdout.readline) for _ in range(4)]
            await client.delete("holder")
            later = [await asyncio.to_thread(child.stdout.readline) for _ in range(3)]
        finally:
            await asyncio.to_thread(child.close)
    assert b"holder" in b"".join(first)
    assert b"holder" not in b"".join(later)


@asynccontextmanager
async def proxied(client: Client, folder: Path) -> AsyncIterator[tuple[str, list[tuple[str, str | None]]]]:
    """A kubeconfig of an API server that passes what is meant for the Service on, and what it was asked by whom."""
    seen: list[tuple[str, str | None]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers.get("Authorization")))
        path = request.raw_path.removeprefix(PREFIX)
        async with (
            aiohttp.ClientSession(client.url) as session,
            session.request(request.method, path, data=await request.read()) as answer,
        ):
            return web.Response(status=answer.status, body=await answer.read())

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [
            {"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "team"}},
            {"name": "other", "context": {"cluster": "k", "user": "v"}},
        ],
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
        "users": [
            {"name": "u", "user": {"token": "of-the-caller"}},
            {"name": "v", "user": {"token": "of-another"}},
        ],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    try:
        yield str(path), seen
    finally:
        await runner.cleanup()


async def test_it_goes_through_the_service_proxy_with_the_callers_kubeconfig(tmp_path: Path) -> None:
    small_pod = json.dumps(pod("small", [container("main", asks(1, 50))])).encode()
    async with serving(*OBJECTS) as client:
        async with proxied(client, tmp_path) as (kubeconfig, seen):
            pods = await run("top", "pods", "-n", "default", KUBECONFIG=kubeconfig)
            why = await run("why", "lost", "--kubeconfig", kubeconfig)
            small = await run("what-if", "-f", "-", "--kubeconfig", kubeconfig, stdin=small_pod)
            missing = await run("why", "nobody", "--kubeconfig", kubeconfig)
        gone = await run("top", "pods", "--kubeconfig", kubeconfig)
        none = await run("top", "pods", "--kubeconfig", str(tmp_path / "none"))
        refused = await run("top", "pods", "--server", client.url.rpartition(":")[0] + ":1")
    assert [row[1] for row in pods.rows()] == ["NAME", "holder", "waits"]
    assert why.out.startswith("team/lost on n2")
    assert small.status == 0
    assert "404 pod: team/nobody: not found" in missing.err
    assert seen[0] == (f"{PREFIX}/api/v1/pods?namespace=default", "Bearer of-the-caller")
    assert [(each.status, each.out, each.err.count("\n")) for each in (none, gone)] == [(2, "", 1)] * 2
    assert refused.err == "error: --server: GET /api/v1/pods: Connection refused\n"


async def test_the_context_that_is_named_gives_credentials_and_namespace(tmp_path: Path) -> None:
    async with serving(*OBJECTS) as client, proxied(client, tmp_path) as (kubeconfig, seen):
        several = f"{tmp_path / 'none'}:{kubeconfig}"
        other = await run("why", "waits", "--context", "other", KUBECONFIG=several)
        current = await run("why", "lost", KUBECONFIG=several)
        unknown = await run("why", "waits", "--context", "nowhere", KUBECONFIG=several)
    assert (other.status, current.status) == (0, 0)
    assert [token for _, token in seen] == ["Bearer of-another", "Bearer of-the-caller"]
    assert (unknown.status, unknown.out, unknown.err.count("\n")) == (2, "", 1)
    assert "nowhere" in unknown.err


async def test_what_is_asked_arrives_whole_at_the_other_end_of_the_proxy(tmp_path: Path) -> None:
    objects = [node("n1", [card("GPU-1", type="A & B, 10%")]), node("n2")]
    async with serving(*objects) as client, proxied(client, tmp_path) as (kubeconfig, _):
        nodes = await run("top", "nodes", "--model", "A & B, 10%", "--kubeconfig", kubeconfig)
        verify = await run("verify", "--problems", "-o", "json", "--kubeconfig", kubeconfig)
    assert [row[0] for row in nodes.rows()] == ["NODE", "n1"]
    assert (verify.status, json.loads(verify.out)) == (0, {"problems": []})


@pytest.mark.parametrize(
    "words, expected",
    [
        ([""], {"top", "why", "what-if", "verify", "usage", "completion"}),
        (["w"], {"why", "what-if"}),
        (["top", ""], {"nodes", "pods"}),
        (["verify", "--p"], {"--problems"}),
        (["completion", "b"], {"bash"}),
    ],
)
def test_kubectl_is_told_what_may_come_next(
    words: list[str], expected: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(words) == 0
    *found, directive = capsys.readouterr().out.splitlines()
    assert expected == set(found)
    assert directive == ":4"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_shells_get_a_script_that_they_can_read(shell: str, tmp_path: Path) -> None:
    said = await run("completion", shell)
    assert said.status == 0
    assert "what-if" in said.out
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so its script is not read by it")
    script = tmp_path / shell
    script.write_text(said.out)
    process = await asyncio.create_subprocess_exec(shell, "-n", str(script))
    assert await process.wait() == 0


def _texts(of: argparse.ArgumentParser) -> None:
    for action in of._actions:
        assert action.help or action.dest in ("command", "what"), action
        for inner in action.choices.values() if isinstance(action.choices, dict) else ():
            _texts(inner)


def test_every_option_has_a_text() -> None:
    _texts(parser())


async def test_bad_arguments_are_one_line() -> None:
    for arguments in (["why"], ["top", "none"], ["usage", "--server", "ftp://x"], ["usage", "-o", "xml"]):
        said = await run(*arguments)
        assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
        assert said.err.startswith("error: arguments: ")
