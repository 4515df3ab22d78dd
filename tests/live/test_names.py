"""Names that would lead to another path: from filter, bind, node annotations and lists, none reaches the API server.

It exists because `../../../nodes/n1` as a pod's name once made the extender patch a Node. It must not look into the
extender: only the requests to the API server count. Invariant: whatever a name says, every request goes to an intended
path, and other pods are served.
"""

import json
from typing import Any

import pytest

from tests.extender.objects import Json, bound, node, pod
from tests.live.harness import Bench, eventually, running
from tests.live.harness_locks import lock_text, locked
from tests.live.harness_waking import refuse, woken

ELSEWHERE = "../../../nodes/n1"
ILLEGAL = [ELSEWHERE, "..%2F..%2F..%2Fnodes%2Fn1", "p?force=true", "p/binding", "..", "P", "p\x1b[2J", "a" * 254]


def strange_paths(bench: Bench) -> list[str]:
    """Return the requests to paths that have anything but legal names."""
    legal = set("abcdefghijklmnopqrstuvwxyz0123456789-./")
    paths = [seen.path for seen in bench.api.requests.recent]
    return [path for path in paths if ".." in path or "//" in path or not legal.issuperset(path)]


def of_nodes(bench: Bench, method: str) -> int:
    return bench.api.requests.count(method=method, resource="nodes")


def named(made: Json, name: str, namespace: str = "default") -> Json:
    return made | {"metadata": made["metadata"] | {"name": name, "namespace": namespace}}


async def test_a_refused_pod_with_an_illegal_name_is_never_written_to() -> None:
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000)) as bench:
        await refuse(bench, pod("p", memory=500))
        for number, name in enumerate(ILLEGAL):
            forged = named(pod("q", memory=100, uid=f"uid-{number}"), name)
            answer = await bench.scheduler.filter(forged)
            assert (answer.passed, answer.error, list(answer.unresolvable)) == ([], "", ["n1"])
            assert await bench.scheduler.prioritize(forged, "n1") == {}
        bench.kube.delete_pod("a")
        # Every pod that may be woken is woken by then.
        await eventually(lambda: "p" in woken(bench), "the other pod is woken")
        assert await bench.scheduler.place(bench.kube.pod("p")) == "n1"
        assert (of_nodes(bench, "PATCH"), strange_paths(bench)) == (0, [])
        await bench.agrees()


@pytest.mark.parametrize("lock_mode", [False, True])
async def test_a_bind_with_an_illegal_name_asks_nobody(lock_mode: bool) -> None:
    forged = [("PodName", name) for name in ILLEGAL] + [("PodNamespace", name) for name in (*ILLEGAL, "a.b")]
    forged += [("Node", name) for name in (ELSEWHERE, "N1", "n1?x")]
    forged += [("PodUID", "uid\x1b[2J"), ("PodUID", "u" * 254)]
    async with running(node("n1"), lock_mode=lock_mode) as bench:
        made = bench.kube.create(pod("p"))
        await bench.scheduler.filter(made)
        before, meta = bench.requests, made["metadata"]
        body: dict[str, Any] = {"PodName": "p", "PodNamespace": "default", "PodUID": meta["uid"], "Node": "n1"}
        for field, value in forged:
            async with bench.extender.session.post("/bind", data=json.dumps(body | {field: value})) as response:
                error = (await response.json())["Error"]
            assert error.startswith(f"{field}: "), error
        assert (bench.requests, strange_paths(bench)) == (before, [])
        assert await bench.scheduler.bind(made, "n1") == ""
        await bench.agrees()


@pytest.mark.parametrize("owner", [f"default,{ELSEWHERE}", "../../nodes,n1", "default,P", "default,"])
async def test_a_lock_whose_owner_no_api_server_would_accept_is_unreadable_and_keeps_nobody_out(owner: str) -> None:
    async with running(locked(lock_text(1, owner)), lock_mode=True, http_timeout_seconds=1.0) as bench:
        assert await bench.scheduler.place(bench.kube.create(pod("p"))) == "n1"
        assert strange_paths(bench) == []
        await bench.agrees()


async def test_objects_with_illegal_names_in_a_list_stop_nobody() -> None:
    async with running(node("n1"), node("n2")) as bench:
        for forged in (named(bound("q", "n1", "GPU-n1-0", 900), ELSEWHERE), named(node("n9"), ELSEWHERE)):
            bench.api.load([forged])
        await bench.live.reflectors[0].list_again()
        await bench.live.reflectors[1].list_again()
        assert (await bench.live.compare()).why_incomplete == ""
        assert await bench.scheduler.place(bench.kube.create(pod("p", memory=900)), "n1") == "n1"
        assert strange_paths(bench) == []
