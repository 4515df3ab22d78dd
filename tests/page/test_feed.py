"""The page's files and its stream over real HTTP, without a browser.

They exist because the stream must not lose a change. They must not know the page. Invariant: a reader at the end of the
stream knows the newest state of every node.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import aiohttp

from accounting.holders import VmiKey
from accounting.pod import Pod
from extender.reports import first_waiting
from extender.server.page import Feed
from extender.server.page.rows import BLOCKED, EXCLUSIVE, FIELDS, ORPHANED, OVERCOMMITTED
from extender.server.turns import Turns
from extender.verbs import Decisions
from tests.extender.objects import asks, bound, container, node, phased, pod, quota
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.serving import Client, make_cluster, serving
from tests.extender.vmis import raw_node, vmi

ROOT = Path(__file__).parents[2]
Event = tuple[str, Any, str]


async def stream(client: Client, times: int = 1, mark: str = "", having: tuple[str, ...] = ()) -> list[Event]:
    """Events up to the given number of ends of rounds, and until these kinds have come: kind, data, mark."""
    found: list[Event] = []
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{client.url}/api/v1/changes", headers={"Last-Event-ID": mark}) as answer,
    ):
        assert answer.content_type == "text/event-stream"
        event: dict[str, str] = {}
        async for line in answer.content:
            key, colon, value = line.decode().rstrip("\n").partition(": ")
            if colon:
                event[key] = value
            elif event:
                found.append((event["event"], json.loads(event["data"]), event["id"]))
                event = {}
                times -= found[-1][0] == "reached"
                if times <= 0 and found[-1][0] == "reached" and {kind for kind, _, _ in found}.issuperset(having):
                    break
    return found


def lines(events: list[Event]) -> dict[str, Any]:
    """Return what a page knows of each node after these events."""
    known: dict[str, Any] = {}
    for kind, data, _ in events:
        if kind == "reset":
            known.clear()
        elif kind == "nodes":
            known |= {line["n"]: line for line in data}
        elif kind == "gone":
            for name in data:
                known.pop(name)
    return known


async def everything(client: Client) -> tuple[dict[str, Any], str]:
    """Return all nodes, once they are all there, and the mark to continue from."""
    wanted = {each["node"] for each in await client.get("/api/v1/nodes")}
    times = 1
    while (known := lines(events := await stream(client, times))).keys() != wanted:
        times += 1
    return known, events[-1][2]


def card(line: Any, position: int = 0) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return dict(zip(FIELDS, line["c"][position], strict=True))


async def test_a_line_adds_up_and_tells_inits_sidecars_and_apps_apart() -> None:
    objects = [node("n1", 2), bound("alone", "n1", "GPU-n1-1", 300, cores=100, namespace="team")]
    async with serving(*objects) as client:
        await client.create(phased())
        listed = {each["node"]: each["devices"] for each in await client.get("/api/v1/nodes")}["n1"]
        entry = (await client.pods())["default/p"]
        known, _ = await everything(client)
    for position, device in enumerate(listed):
        shown = card(known["n1"], position)
        for name in ("slots", "memory", "cores"):
            assert shown[f"capacity {name}"] == device["capacity"][name]
            assert shown[f"requested {name}"] == device["requested"][name]
    (uuid, held), (_, steady) = (*entry["held"].items(),)[0], (*entry["steady"].items(),)[0]
    shown = card(known["n1"], [device["uuid"] for device in listed].index(uuid))
    assert shown["inits memory"] == held["memory"] - steady["memory"] > 0
    assert shown["sidecars memory"] == sum(
        row["memory"] for each in entry["containers"] if each["kind"] == "sidecar" for row in each["devices"]
    )
    exclusive = card(known["n1"], 1)
    assert (exclusive["marks"], exclusive["namespaces"]) == (EXCLUSIVE, [known["n1"]["s"].index("team")])


async def test_marks_tell_what_is_wrong() -> None:
    objects = [
        node("n1", 2),
        bound("large", "n1", "GPU-n1-0", 5000),
        pod("unreadable", node="n1", allocation="GPU-n1-1,NVIDIA,x,0:;"),
        bound("lost", "gone", "GPU-lost"),
    ]
    async with serving(*objects) as client:
        known, _ = await everything(client)
    assert card(known["n1"])["marks"] == OVERCOMMITTED
    assert card(known["n1"], 1)["marks"] == BLOCKED
    assert card(known["gone"])["marks"] == ORPHANED | OVERCOMMITTED


async def test_the_stream_goes_on_where_a_reader_was() -> None:
    async with serving(node("n1"), node("n2"), bound("p", "n1", "GPU-n1-0")) as client:
        _, mark = await everything(client)
        await client.delete("p")
        events = await stream(client, 1, mark, ("nodes",))
        assert "reset" not in [kind for kind, _, _ in events]
        assert lines(events).keys() == {"n1"}
        assert card(lines(events)["n1"])["requested memory"] == 0


async def test_a_reader_of_another_run_begins_anew() -> None:
    async with serving(node("n1")) as client:
        for mark in ("another-7", "nonsense", "-", "x-\u00b2"):
            assert (await stream(client, 1, mark.encode("ascii", "ignore").decode()))[0][0] == "reset"


async def test_a_node_that_is_gone_is_told() -> None:
    async with serving(node("n1"), node("n2")) as client:
        _, mark = await everything(client)
        client.cluster.remove_node("n2")
        events = await stream(client, 1, mark, ("gone",))
    assert ["n2"] in [data for kind, data, _ in events if kind == "gone"]


async def test_waiting_pods_come_with_the_reasons_that_filter_gave_last() -> None:
    waits = pod("q", [container("main", asks(1, 5000))])
    async with serving(node("n1"), node("n2"), quota({"limits.nvidia.com/gpumem": "9000"})) as client:
        await client.create(waits)
        await client.filter(waits, "n1", "n2")
        told = {kind: data for kind, data, _ in await stream(client, having=("waiting", "summary", "quotas"))}
    assert told["waiting"] == [
        {
            "pod": "default/q",
            "asks": ["main: 1 card, 5000 MiB"],
            "invalid": [],
            "nodes": 2,
            "refused": [["InsufficientMemory", 2]],
        }
    ]
    assert (told["summary"]["nodes"], told["summary"]["waiting"]) == (2, 1)
    assert [each["hard"] for each in told["quotas"]] == [9000]


async def test_a_node_is_told_again_when_its_whole_devices_change_hands() -> None:
    cluster = make_raw_cluster(raw_node("n1", 4), raw_node("n2", 4), vmi("a", units=2, node="n1"))
    async with serving(cluster=cluster) as client:
        known, mark = await everything(client)
        assert [known[name]["r"][0][2:6] for name in ("n1", "n2")] == [[4, 0, 2, 0], [4, 0, 0, 0]]
        cluster.remove_vmi(VmiKey("default", "a"))
        events = await stream(client, 1, mark, ("nodes",))
    assert lines(events).keys() == {"n1"}
    assert lines(events)["n1"]["r"][0][2:6] == [4, 0, 0, 0]


def test_the_pods_that_wait_are_the_same_in_steps() -> None:
    waits = [pod(f"q{number}", [container("main", asks(1, 5000))]) for number in (2, 1)]
    cluster = make_cluster(node("n1"), bound("p", "n1", "GPU-n1-0"), *waits)
    found: list[list[Pod]] = []

    def taken() -> Iterator[None]:
        found.append((yield from first_waiting(cluster, 10)))
        found.append((yield from first_waiting(cluster, 1)))

    list(taken())
    assert found == [cluster.waiting(), cluster.waiting()[:1]]
    assert [each.name for each in cluster.waiting()] == ["q1", "q2"]


async def test_a_stop_ends_the_streams() -> None:
    feed = Feed(make_cluster(node("n1")), Decisions(), Turns())
    told = []
    async for kind, _, _ in feed.messages():
        told.append(kind)
        if kind == "nodes":
            feed.stop()
    assert told[0] == "reset"
    assert "nodes" in told


def test_what_others_wrote_is_as_they_published_it_with_its_licence() -> None:
    folder = resources.files("extender.server.page").joinpath("static", "lit-html")
    version = folder.joinpath("VERSION").read_text()
    found = re.search(r"^lit-html (\S+) .*\nsha256 ([0-9a-f]{64})$", version, re.MULTILINE)
    assert found is not None
    assert found[1] in (ROOT / "docs" / "page.md").read_text()
    assert hashlib.sha256(folder.joinpath("lit-html.js").read_bytes()).hexdigest() == found[2]
    assert "BSD 3-Clause License" in folder.joinpath("LICENSE").read_text()


async def test_files_have_a_strict_policy_and_are_known_by_their_hash() -> None:
    async with serving() as client, aiohttp.ClientSession(client.url) as session:
        for path in ("/", "/page/app.js", "/page/style.css", "/page/icon.svg", "/page/lit-html/lit-html.js"):
            async with session.get(path) as answer:
                policy, tag = answer.headers["Content-Security-Policy"], answer.headers["ETag"]
                assert await answer.read()
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            again = await client.send("GET", path, headers={"If-None-Match": tag})
            assert (again.status, again.body) == (304, b"")
        for path in ("/page/none.js", "/page/..%2fhandlers.py", "/page/%2e%2e/__init__.py"):
            assert (await client.send("GET", path)).status == 404
