"""GET /api/v1/options shows what is free, not the total.

It exists because a catalogue is built from it. It must not look into arrays. Invariant: what is listed as free can be
placed, one share or unit after another, and nothing more.
"""

import pytest

from tests.extender.objects import MODEL, Json, bound, card, node, pod, rows
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.serving import Client, serving
from tests.extender.vmis import K, raw_node, raw_pod, vmi


async def cards(client: Client, query: str = "") -> dict[str, Json]:
    return {each["model"]: each for each in (await client.get(f"/api/v1/options{query}"))["cards"]}


async def raw(client: Client, query: str = "") -> list[Json]:
    return list((await client.get(f"/api/v1/options{query}"))["raw"])


async def test_shares_are_what_can_be_placed_one_after_another() -> None:
    async with serving(node("n1", 2), bound("b", "n1", "GPU-n1-0", 700)) as client:
        said = (await cards(client, "?memory=300,400"))[MODEL]
        assert (said["cards"], said["unused"], said["free_memory"]) == (2, 1, 1300)
        assert said["shares"] == [{"memory": 300, "free": 4}, {"memory": 400, "free": 2}]
        for number in range(4):
            await client.place(pod(f"p{number}", memory=300), "n1")
        assert (await cards(client, "?memory=300"))[MODEL]["shares"] == [{"memory": 300, "free": 0}]
        assert (await client.filter(pod("more", memory=300), "n1"))["NodeNames"] == []


async def test_slots_and_cores_limit_shares_as_they_limit_pods() -> None:
    few = node("n1", [card("GPU-s", slots=2, memory=1000), card("GPU-c", 1, memory=1000)])
    async with serving(few, bound("b", "n1", "GPU-c", 10, cores=50), bound("c", "n1", "GPU-c", 10, cores=50)) as client:
        assert (await cards(client, "?memory=100"))[MODEL]["shares"] == [{"memory": 100, "free": 2}]
        assert (await cards(client))[MODEL]["shares"] == [
            {"memory": size, "free": free} for size, free in ((125, 2), (250, 2), (500, 2), (1000, 1))
        ]


async def test_cards_that_take_nobody_are_no_option() -> None:
    broken = node("n1", [card("GPU-a", health=False), card("GPU-b", 1)], annotations={"hami.io/device-cordon": "GPU-b"})
    unreadable = pod("u", node="n2", allocation=rows([("GPU-n2-0", 1, 0)])[:-4], status={"phase": "Running"})
    async with serving(broken, node("n2"), unreadable) as client:
        said = (await cards(client))[MODEL]
        assert (said["cards"], said["unused"], said["shares"]) == (0, 0, [])


async def test_free_units_per_raw_key() -> None:
    objects = (
        raw_node("n1"),
        raw_node("n2", 4),
        raw_node("n3", 2),
        vmi("a", ["uid-l"], units=2),
        raw_pod("l", 2, node="n1"),
        raw_pod("s", 1, node="n1"),
        raw_pod("t", 3, node="n3"),
    )
    cluster = make_raw_cluster(*objects, budgets={("default", K): 7})
    async with serving(cluster=cluster) as client:
        # The launcher and its VM are one use; what n3 lacks takes nothing from the others.
        assert await raw(client) == [{"key": K, "nodes": 2, "free": 9, "largest": 5}]
        (said,) = await raw(client, "?namespace=default")
        assert said["budget"] == {"hard": 7, "used": 6, "left": 1}
        assert "budget" not in (await raw(client, "?namespace=other"))[0]


@pytest.mark.parametrize("query", ["memory=0", "memory=-1", "memory=1Gi", f"memory={'9' * 10}", f"memory={'1,' * 17}"])
async def test_sizes_that_cannot_be_used_are_named(query: str) -> None:
    async with serving(node("n1")) as client:
        answer = await client.send("GET", f"/api/v1/options?{query}")
        assert answer.status == 400
        assert answer.json()["error"].startswith("memory: ")
