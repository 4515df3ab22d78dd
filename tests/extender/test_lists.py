"""The lists of /api/v1: pods, nodes with their cards, quotas.

They exist because people and the page see the state through the lists. They must not decide anything. Invariant: every
list is in a full order, and reading changes nothing.
"""

from tests.extender.objects import (
    CORES,
    COUNT,
    MEMORY,
    STEADY,
    asks,
    bound,
    container,
    held,
    node,
    phased,
    pod,
    quota,
    rows,
    status_of,
)
from tests.extender.serving import Answer, serving

CARD, OTHER = "GPU-n1-0", "GPU-n1-1"


async def test_the_list_holds_pods_that_ask_or_hold_sorted_by_namespace_and_name() -> None:
    objects = [
        bound("b", "n1", CARD),
        bound("a", "n1", CARD),
        bound("c", "n1", CARD, namespace="another"),
        pod("plain", [container("main")], node="n1"),
        pod("broken", [container("main", asks("-1"))]),
        pod("done", [container("main", asks(1))], node="n1", status=status_of("Succeeded")),
    ]
    async with serving(node("n1"), *objects) as client:
        listed = await client.get("/api/v1/pods")
    assert [entry["pod"] for entry in listed] == [
        "another/c",
        "default/a",
        "default/b",
        "default/broken",
        "default/done",
    ]
    assert "-1" in listed[3]["invalid"][0]
    assert (listed[4]["held"], listed[4]["state"]) == ({}, "released")


async def test_nodes_list_every_card_with_what_is_held() -> None:
    gone = pod("gone", node="n1", allocation=rows([("GPU-lost", 9, 0)]), status=status_of("Running"))
    async with serving(
        node("n2"), node("n1", 2), node("bare", 0), bound("p", "n1", OTHER, 30, cores=5), gone
    ) as client:
        listed = await client.get("/api/v1/nodes")
        verify = await client.get("/api/v1/verify")
    assert [(row["node"], [each["uuid"] for each in row["devices"]]) for row in listed] == [
        ("bare", []),
        ("n1", [CARD, OTHER, "GPU-lost"]),
        ("n2", ["GPU-n2-0"]),
    ]
    _, other, lost = listed[1]["devices"]
    assert (other["node"], other["pods"], other["overcommitted"], other["blocked"]) == ("n1", ["default/p"], False, [])
    assert other["capacity"] == held(10, 1000, 100)
    assert other["requested"] == held(1, 30, 5)
    assert other["free"] == held(9, 970, 95)
    assert (lost["capacity"], lost["free"], lost["overcommitted"]) == (held(0, 0), held(-1, -9), True)
    assert verify["devices"] == [each for row in listed for each in row["devices"]]
    assert {each["code"] for each in verify["problems"]} == {"OrphanedDevice"}


async def test_quotas_show_what_is_used_and_what_the_api_server_charges() -> None:
    hard = {"requests.nvidia.com/gpu": "4", "limits.nvidia.com/gpumem": "1k", "requests.nvidia.com/gpucores": "50"}
    two = pod("two", [container("main", asks(2, 100, 10))])
    async with serving(node("n1", 2), quota(hard), quota({"requests.nvidia.com/gpu": "9"}, "empty")) as client:

        async def numbers() -> dict[tuple[str, str], tuple[int, int, int]]:
            return {
                (row["namespace"], row["resource"]): (row["hard"], row["used"], row["api_charge"])
                for row in await client.get("/api/v1/quotas")
            }

        await client.create(two)
        # Only the API server charges a pending pod, and per container, not per card.
        pending = {("default", COUNT): (4, 0, 2), ("default", MEMORY): (1000, 0, 100), ("default", CORES): (50, 0, 10)}
        assert await numbers() == pending | {("empty", COUNT): (9, 0, 0)}
        await client.place(two, "n1")
        assert await numbers() == {
            ("default", COUNT): (4, 2, 2),
            ("default", MEMORY): (1000, 200, 100),
            ("default", CORES): (50, 20, 10),
            ("empty", COUNT): (9, 0, 0),
        }
        await client.create(two | {"status": status_of("Succeeded")}, 200)
        assert set((await numbers()).values()) == {(4, 0, 0), (1000, 0, 0), (50, 0, 0), (9, 0, 0)}


async def test_quota_follows_the_shrink_and_the_api_charge_does_not() -> None:
    async with serving(node("n1"), quota({"limits.nvidia.com/gpumem": "30"})) as client:
        await client.create(phased())
        assert [(row["used"], row["api_charge"]) for row in await client.get("/api/v1/quotas")] == [(22, 22)]
        await client.create(phased(STEADY), 200)
        assert [(row["used"], row["api_charge"]) for row in await client.get("/api/v1/quotas")] == [(12, 22)]
        await client.create(phased(), 200)
        assert (await client.filter(pod("q", memory=9), "n1"))["NodeNames"] == []
        await client.create(phased(STEADY), 200)
        assert (await client.filter(pod("q", memory=9), "n1"))["NodeNames"] == ["n1"]
        assert (await client.filter(pod("q", memory=19), "n1"))["NodeNames"] == []


async def test_the_tightest_of_several_quotas_counts_and_scopes_stand_beside_it() -> None:
    quotas = [
        quota({"requests.nvidia.com/gpu": "3"}, name="wide"),
        quota({"limits.nvidia.com/gpu": "2"}, name="tight"),
        quota({"requests.nvidia.com/gpu": "5"}, name="scoped", scopes=["NotBestEffort"]),
    ]
    async with serving(node("n1"), *quotas, bound("p", "n1", "GPU-n1-0")) as client:
        everyone, some = await client.get("/api/v1/quotas")
    same = {"namespace": "default", "resource": COUNT, "enforced_by_api": True, "exceeded": False}
    assert everyone == same | {"hard": 2, "used": 1, "api_charge": 1, "quota": "tight", "scopes": []}
    assert some == same | {"hard": 5, "used": 0, "api_charge": 0, "quota": "scoped", "scopes": ["NotBestEffort"]}


async def test_the_lists_of_an_empty_cluster_are_empty() -> None:
    async with serving() as client:
        for path in ("pods", "nodes", "quotas"):
            assert await client.send("GET", f"/api/v1/{path}") == Answer(200, b"[]")
        assert await client.get("/api/v1/verify") == {"devices": [], "problems": []}
