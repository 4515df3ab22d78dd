"""The questions of /api/v1 over real HTTP: one node, one pod, why it waits, sums, decisions.

They exist because a person on call asks these first. They must not know how a number is computed. Invariant: they agree
with the lists and with what filter says.
"""

from typing import Any

from extender.verbs.decisions import KEPT, KEPT_PER_POD, NAMED
from tests.extender.objects import asks, bound, container, held, node, phased, pod, quota, sidecar
from tests.extender.serving import Client, serving

CARD = "GPU-n1-0"


async def error(client: Client, path: str, status: int, method: str = "GET", body: bytes | None = None) -> str:
    answer = await client.send(method, path, body)
    assert answer.status == status
    said: dict[str, str] = answer.json()
    assert said.keys() == {"error"}
    return said["error"]


async def what_if(client: Client, body: bytes | dict[str, Any]) -> Any:  # noqa: ANN401 - whatever the server said
    answer = await client.post("/api/v1/what-if", body)
    assert answer.status == 200
    return answer.json()


async def test_one_node_is_what_the_list_says_of_it() -> None:
    async with serving(node("n1", 2), node("n2"), bound("p", "n1", CARD), bound("lost", "gone", "GPU-x")) as client:
        listed = {each["node"]: each for each in await client.get("/api/v1/nodes")}
        for name in ("n1", "n2", "gone"):
            assert await client.get(f"/api/v1/nodes/{name}") == listed[name]
        assert await error(client, "/api/v1/nodes/n9", 404) == "node: n9: not found"


async def test_one_pod_is_its_entry_with_what_it_asks_for_its_phases_and_decisions() -> None:
    async with serving(node("n1")) as client:
        await client.create(phased())
        listed = await client.pods()
        found = await client.get("/api/v1/pods/default/p")
        assert {key: found[key] for key in listed["default/p"]} == listed["default/p"]
        cards = {each["phase"]: each["cards"] for each in found["phases"]}
        (name,) = found["held"]
        assert [each for each in cards if each != "steady"] == [
            f"init {each['name']}" for each in found["containers"] if each["kind"] == "init"
        ]
        assert max(each[name]["memory"] for each in cards.values()) == found["peak"][name]["memory"]
        assert cards["steady"] == found["steady"]
        assert found["decisions"] == []
        assert await error(client, "/api/v1/pods/default/q", 404) == "pod: default/q: not found"


async def test_why_counts_the_reasons_of_filter_and_names_who_is_in_the_way() -> None:
    objects = [node("n1"), node("n2", memory=400), node("n3", 0), bound("holder", "n1", CARD, 950)]
    async with serving(*objects) as client:
        asking = pod("q", [container("main", asks(1, 500))])
        await client.create(asking)
        said = await client.filter(asking, "n1", "n2", "n3")
        why = await client.get("/api/v1/pods/default/q/why")
    assert (why["fits"], why["nodes"], why["best"]) == (0, 3, [])
    told = [text.partition(":")[0] for kind in said.values() if isinstance(kind, dict) for text in kind.values()]
    assert {each["code"]: each["count"] for each in why["refused"]} == {code: told.count(code) for code in told}
    (near,) = why["nearest"]
    assert (near["node"], near["code"], near["container"]) == ("n1", "InsufficientMemory", "main")
    holder = {"kind": "pod", "name": "default/holder", "slots": 1, "memory": 950, "cores": 0}
    assert near["cards"] == [
        {"uuid": CARD, "memory": 450, "cores": 0, "slots": 0, "occupied": False, "holders": [holder]}
    ]
    assert [each["pod"] for each in near["in_the_way"]] == ["default/holder"]
    assert why["text"] == (f"n1 lacks 450 MiB on {CARD} for container main; the pod fits once default/holder ends")


async def test_why_says_that_no_room_would_help() -> None:
    async with serving(node("n1"), node("n2", memory=400)) as client:
        (large,) = await what_if(client, pod("large", [container("main", asks(1, 5000))]))
        (broken,) = await what_if(client, pod("broken", [container("main", asks("-1"))]))
    assert large["text"] == "no node would take it even with every pod gone; the largest card has 1000 MiB"
    assert large["nearest"] == []
    assert "-1" in broken["text"]
    assert broken["refused"][0] == {"code": "InvalidRequest", "count": 2, "nodes": ["n1", "n2"]}


async def test_why_says_which_quota_is_passed() -> None:
    async with serving(node("n1"), quota({"limits.nvidia.com/gpumem": "100"})) as client:
        (why,) = await what_if(client, pod("q", [container("main", asks(1, 500))]))
    assert (why["fits"], why["nearest"], [each["code"] for each in why["refused"]]) == (0, [], ["QuotaExceeded"])
    assert why["text"] == why["quota"][0]
    assert "nvidia.com/gpumem" in why["text"]


async def test_what_if_leaves_nothing_behind_and_takes_workloads() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x", [container("main", asks(1, 500))])["spec"]}
    documents = [
        {"kind": kind, "metadata": {"name": kind.lower(), "namespace": "team"}, "spec": {"template": template}}
        for kind in ("Deployment", "Job", "StatefulSet")
    ]
    documents.append(
        {"kind": "CronJob", "metadata": {"name": "cron"}, "spec": {"jobTemplate": {"spec": {"template": template}}}}
    )
    async with serving(node("n1"), node("n2")) as client:
        found = await what_if(client, {"kind": "List", "items": documents})
        pods = await client.get("/api/v1/pods")
        assert "none" in await error(
            client, "/api/v1/what-if", 400, "POST", b'{"kind":"Job","metadata":{"name":"j"},"spec":{}}'
        )
        assert "0 pods" in await error(client, "/api/v1/what-if", 400, "POST", b'{"kind":"Service"}')
        assert await error(client, "/api/v1/what-if", 400, "POST", b"")
    assert [each["pod"] for each in found] == ["team/deployment", "team/job", "team/statefulset", "default/cron"]
    assert all(each["fits"] == 2 and [best["score"] for best in each["best"]] == [10, 9] for each in found)
    assert pods == []


async def test_decisions_tell_of_filter_scores_and_bind() -> None:
    async with serving(node("n1"), node("n2", memory=100), node("n3", 0)) as client:
        asking = pod("q", [container("main", asks(1, 500))], inits=[sidecar("side", asks(1, 10))])
        passed = (await client.filter(asking, "n1", "n2", "n3"))["NodeNames"]
        await client.prioritize(asking, *passed)
        await client.bind(asking, "n1")
        (found,) = await client.get("/api/v1/decisions")
        one = await client.get("/api/v1/pods/default/q")
    assert (found["pod"], found["nodes"], found["fits"], found["choice"]) == ("default/q", 3, 1, "n1")
    assert found["refused"] == [
        {"code": "InsufficientMemory", "count": 1, "nodes": ["n2"]},
        {"code": "NoDevices", "count": 1, "nodes": ["n3"]},
    ]
    assert [(each["name"], each["kind"], each["requests"][0]["memory"]) for each in found["asks"]] == [
        ("side", "sidecar", 10),
        ("main", "app", 500),
    ]
    assert found["scores"] == [{"node": "n1", "score": 10}]
    assert (found["bind"]["node"], found["bind"]["error"]) == ("n1", "")
    assert min(found["filter_microseconds"], found["prioritize_microseconds"], found["bind"]["microseconds"]) > 0
    assert one["decisions"] == [found]


async def test_a_refused_bind_is_told_and_questions_that_repeat_are_counted() -> None:
    async with serving(node("n1"), bound("p", "n1", CARD, 900)) as client:
        asking = pod("q", [container("main", asks(1, 500))])
        for _ in range(3):
            await client.filter(asking, "n1")
        assert (await client.bind(asking, "n1")).startswith("InsufficientMemory")
        (found,) = await client.get("/api/v1/decisions")
    assert (found["repeats"], found["choice"], found["fits"]) == (2, None, 0)
    assert found["bind"]["error"].startswith("InsufficientMemory")


async def test_decisions_are_bounded_over_all_pods_and_per_pod() -> None:
    names = [f"n{number}" for number in range(NAMED + 5)]
    async with serving() as client:
        for number in range(KEPT + 10):
            await client.filter(pod(f"p{number}"), *names)
        for count in range(KEPT_PER_POD + 3):
            await client.filter(pod("last"), *names[: count + 1])
        newest = await client.get("/api/v1/decisions")
        assert [each["pod"] for each in newest[: KEPT_PER_POD + 4]] == ["default/last"] * (KEPT_PER_POD + 3) + [
            f"default/p{KEPT + 9}"
        ]
        assert len(newest) == KEPT
        assert len(newest[KEPT_PER_POD + 3]["refused"][0]["nodes"]) == NAMED
        assert len((await client.get("/api/v1/pods/default/last"))["decisions"]) == KEPT_PER_POD
        assert len(await client.get("/api/v1/decisions?limit=3")) == 3
        assert len(await client.get("/api/v1/decisions?pod=default/last")) == KEPT_PER_POD + 3
        for wrong in ("0", "-1", "x", "1001", "%C2%B2"):
            assert "limit" in await error(client, f"/api/v1/decisions?limit={wrong}", 400)


async def test_sums_are_those_of_the_lists() -> None:
    objects = [
        node("n1", 2),
        node("n2", memory=400),
        bound("a", "n1", CARD, 300, cores=10),
        bound("b", "n1", CARD, 100, namespace="team"),
        bound("c", "n2", "GPU-n2-0", 500, namespace="team"),
        pod("waits"),
        pod("plain", [container("main")]),
        quota({"limits.nvidia.com/gpumem": "1000"}, namespace="team"),
    ]
    async with serving(*objects) as client:
        summary, usage = await client.get("/api/v1/summary"), await client.get("/api/v1/usage")
        (team,) = await client.get("/api/v1/usage?namespace=team")
        cards = [card for each in await client.get("/api/v1/nodes") for card in each["devices"]]
        problems = (await client.get("/api/v1/verify"))["problems"]
    assert (summary["nodes"], summary["pods"], summary["waiting"]) == (2, 3, 1)
    for key in ("capacity", "requested"):
        for dimension, total in summary["totals"][key].items():
            assert total == sum(card[key][dimension] for card in cards)
            assert total == sum(model[key][dimension] for model in summary["models"])
    assert summary["problems"]["Overcommitted"] == len(problems) == 1
    assert [each["namespace"] for each in usage] == ["default", "team"]
    assert usage[1] == team
    assert (team["pods"], team["cards"], team["held"]) == (2, 2, held(2, 600))
    assert team["charged"] == {"count": 2, "memory": 600, "cores": 0}
    assert [(each["hard"], each["used"]) for each in team["quotas"]] == [(1000, 600)]
    assert usage[0]["held"] == held(1, 300, 10)
