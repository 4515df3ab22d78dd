"""`serve` as a process: where it says that it listens, how it ends, and what SIGHUP replaces.

It exists because pods come from both files and requests, and neither may undo the other. It must not repeat what is
tested inside one process. Invariant: what files say now replaces what they said, what came by requests stays.
"""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.extender.objects import Json, asks, bound, container, held, listed, node, pod, quota
from tests.extender.processes import ROOT, Served, run, served
from tests.extender.serving import asked, binding

RELOADED, KEPT = "files read again", "files not read again"


async def requested(server: Served) -> dict[str, Json]:
    rows = await server.get("/api/v1/nodes")
    cards = [each for row in rows for each in row["devices"]]
    return {each["uuid"]: each["requested"] for each in cards if each["requested"]["slots"]}


async def names(server: Served) -> set[str]:
    return {entry["pod"] for entry in await server.get("/api/v1/pods")}


async def test_a_pod_is_placed_end_to_end_and_sigterm_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(listed(node("n1"), node("n2"), bound("p", "n2", "GPU-n2-0", 950)), encoding="utf-8")
    with served("--cluster", path) as server:
        assert "2 nodes, 2 cards, 1 pods" in server.welcome
        asking = pod("q", [container("main", asks(1, 100, 10))])
        said = await server.post("/filter", asked(asking, "n1", "n2", "n3"))
        assert (said["NodeNames"], list(said["FailedNodes"])) == (["n1"], ["n2"])
        assert await server.post("/prioritize", asked(asking, "n1")) == [{"Host": "n1", "Score": 10}]
        assert await server.post("/bind", binding(asking, "n1")) == {"Error": ""}
        assert (await requested(server))["GPU-n1-0"] == held(1, 100, 10)
        assert server.stop() == 0
        assert "Traceback" not in server.log


async def the_number_of_cards_is_everywhere_the_same(server: Served) -> None:
    """The first lines of serve, the page, verify and the demo say it; the demo counts the registered cards."""
    found = re.search(r'"cards": ?(\d+)', server.welcome)
    assert found is not None
    summary = await server.get("/api/v1/summary")
    verified = run("verify", "--cluster", ROOT / "manifests" / "examples" / "cluster.yaml").out.decode()
    rows = await server.get("/api/v1/nodes")
    assert summary["totals"]["cards"] == int(found[1])
    assert f"\n{found[1]} cards, and 1 held that no node registers any more\n" in verified
    assert sum(card["registered"] for node in rows for card in node["devices"]) == int(found[1])


async def test_without_a_cluster_it_serves_the_example() -> None:
    with served("--log-format", "json") as server:
        rows = await server.get("/api/v1/nodes")
        assert str(ROOT / "manifests" / "examples" / "cluster.yaml") in server.welcome
        assert len(rows) == 14
        await the_number_of_cards_is_everywhere_the_same(server)
        await server.post("/filter", {"Pod": None})
        await server.logged("request cannot be answered")
        line = json.loads(server.log.splitlines()[0])
        assert (line["event"], line["level"], line["verb"]) == ("request cannot be answered", "warning", "filter")
        assert server.stop() == 0


async def test_sighup_replaces_what_came_from_files_and_keeps_what_came_by_requests(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.json", tmp_path / "pods.json"
    limits = quota({"requests.nvidia.com/gpu": "9"})
    nodes.write_text(listed(node("n1"), node("n2"), limits), encoding="utf-8")
    old = [bound("stays", "n1", "GPU-n1-0", 1), bound("goes", "n1", "GPU-n1-0", 2), pod("binds", memory=4)]
    pods.write_text(listed(*old, bound("posted", "n1", "GPU-n1-0", 8)), encoding="utf-8")
    with served("--cluster", nodes, "--cluster", pods, "--allow-writes") as server:
        assert await server.post("/bind", binding(old[2], "n1")) == {"Error": ""}
        # A request replaces a pod of the files with one of another UID.
        await server.post("/api/v1/pods", bound("posted", "n1", "GPU-n1-0", 16, uid="uid-new"))
        seen = pod("seen", memory=32)
        assert (await server.post("/filter", asked(seen, "n1")))["NodeNames"] == ["n1"]
        assert (await requested(server)) == {"GPU-n1-0": held(4, 1 + 2 + 4 + 16)}

        nodes.write_text(listed(node("n1", memory=2000), node("n3")), encoding="utf-8")
        new = [bound("stays", "n1", "GPU-n1-0", 64), bound("comes", "n3", "GPU-n3-0", 128)]
        pods.write_text(listed(*new, pod("binds", memory=4), bound("posted", "n1", "GPU-n1-0", 8)), encoding="utf-8")
        server.signal(signal.SIGHUP)
        await server.logged(RELOADED)
        rows = await server.get("/api/v1/nodes")
        assert [row["node"] for row in rows] == ["n1", "n3"]
        assert rows[0]["devices"][0]["capacity"]["memory"] == 2000
        assert await names(server) == {f"default/{name}" for name in ("binds", "comes", "posted", "seen", "stays")}
        assert await requested(server) == {"GPU-n1-0": held(3, 64 + 4 + 16), "GPU-n3-0": held(1, 128)}
        assert await server.get("/api/v1/quotas") == []
        assert await server.post("/bind", binding(seen, "n1")) == {"Error": ""}
        assert server.stop() == 0


async def test_a_broken_file_at_sighup_keeps_everything(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(listed(node("n1"), bound("p", "n1", "GPU-n1-0")), encoding="utf-8")
    with served("--cluster", path) as server:
        before = [await server.get(f"/api/v1/{name}") for name in ("pods", "nodes", "verify")]
        for times, content in enumerate(
            ('{"kind": "List", "items": [', "hello", "", '{"kind": "List", "items": [7]}'), 1
        ):
            path.write_text(content, encoding="utf-8")
            server.signal(signal.SIGHUP)
            await server.logged(KEPT, times)
            assert [await server.get(f"/api/v1/{name}") for name in ("pods", "nodes", "verify")] == before
        path.unlink()
        server.signal(signal.SIGHUP)
        await server.logged(KEPT, 5)
        path.write_text(listed(node("n1")), encoding="utf-8")
        server.signal(signal.SIGHUP)
        await server.logged(RELOADED)
        assert await requested(server) == {}
        assert server.stop() == 0


@pytest.mark.parametrize(
    "allocation, code",
    [("junk:", "UndecodableAllocation"), (None, "MissingAllocation")],
    ids=["unreadable", "missing"],
)
async def test_an_allocation_that_is_lost_in_a_file_keeps_its_cards_until_a_restart(
    tmp_path: Path, allocation: str | None, code: str
) -> None:
    path = tmp_path / "cluster.json"
    good = bound("p", "n1", "GPU-n1-0", 30)
    path.write_text(listed(node("n1"), good), encoding="utf-8")
    with served("--cluster", path) as server:
        (before,) = await server.get("/api/v1/pods")
        path.write_text(listed(node("n1"), pod("p", node="n1", allocation=allocation)), encoding="utf-8")
        server.signal(signal.SIGHUP)
        await server.logged(RELOADED)
        (after,) = await server.get("/api/v1/pods")
        assert (after["held"], after["containers"]) == (before["held"], before["containers"])
        assert after["problem"]["code"] == code
        assert server.stop() == 0
    with served("--cluster", path) as server:
        (restarted,) = await server.get("/api/v1/pods")
        (row,) = await server.get("/api/v1/nodes")
        assert (restarted["held"], row["devices"][0]["blocked"]) == ({}, [code])
