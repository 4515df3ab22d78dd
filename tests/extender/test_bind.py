"""Bind: the one verb that books, on an embedded cluster.

It exists because many pods may pass filter for one card before the first bind arrives, and only one bind may get it. It
must not know how cards are chosen. Invariant: success means booked, an Error means that nothing has changed.
"""

import asyncio

import pytest

from accounting.status import Code
from extender.cluster.cluster import Cluster
from extender.config import Settings
from extender.verbs.texts import wire_text
from tests.extender.objects import (
    ALLOCATION,
    Json,
    asks,
    bound,
    card,
    container,
    held,
    node,
    pod,
    quota,
    rows,
    sidecar,
    status_of,
)
from tests.extender.serving import Client, binding, make_cluster, serving

CARD = "GPU-n1-0"


async def state(client: Client) -> tuple[bytes, bytes]:
    """Return everything that a refused bind must leave as it was."""
    lists = [(await client.send("GET", f"/api/v1/{name}")).body for name in ("pods", "nodes")]
    return lists[0], lists[1]


async def check_refused(client: Client, asking: Json, name: str, *texts: str) -> None:
    """Check that a bind answers an Error with these texts and changes nothing."""
    before = await state(client)
    error = await client.bind(asking, name)
    assert error
    assert all(text in error for text in texts)
    assert await state(client) == before


async def test_a_bound_pod_holds_its_cards() -> None:
    apps = [container("main", asks(2, 300, 20)), container("other", asks(1, 50))]
    async with serving(node("n1", 2)) as client:
        await client.place(pod("p", apps), "n1")
        entry = (await client.pods())["default/p"]
        (row,) = await client.get("/api/v1/nodes")
    assert (entry["uid"], entry["node"], entry["state"]) == ("uid-p", "n1", "steady")
    first, second = entry["containers"]
    assert {each["uuid"]: (each["memory"], each["cores"]) for each in first["devices"]} == {
        "GPU-n1-0": (300, 20),
        "GPU-n1-1": (300, 20),
    }
    assert [(each["memory"], each["cores"]) for each in second["devices"]] == [(50, 0)]
    assert entry["held"] == entry["peak"] == entry["steady"]
    assert sum(use["memory"] for use in entry["held"].values()) == 650
    assert {each["uuid"]: each["requested"] for each in row["devices"]} == entry["held"]
    assert all(each["pods"] == ["default/p"] for each in row["devices"])


async def test_phases_share_a_card_in_their_order() -> None:
    inits = [sidecar("side", asks(1, 2)), container("init", asks(1, 20))]
    asking = pod("p", [container("main", asks(1, 10))], inits=inits)
    async with serving(node("n1")) as client:
        await client.place(asking, "n1")
        entry = (await client.pods())["default/p"]
    assert (entry["state"], entry["peak"], entry["steady"]) == ("peak", {CARD: held(2, 22)}, {CARD: held(2, 12)})
    assert entry["held"] == entry["peak"]


async def test_the_same_bind_twice_is_success_twice() -> None:
    async with serving(node("n1"), node("n2")) as client:
        await client.place(pod(), "n1")
        before = await state(client)
        assert await client.bind(pod(), "n1") == ""
        assert await state(client) == before
        await check_refused(client, pod(), "n2", "default/p", "n1")


async def test_fifty_equal_binds_at_once_book_one_share() -> None:
    async with serving(node("n1")) as client:
        await client.filter(pod(), "n1")
        errors = await asyncio.gather(*(client.bind(pod(), "n1") for _ in range(50)))
        assert set(errors) == {""}
        assert await client.requested() == {CARD: held(1, 100)}


async def test_one_of_two_pods_that_passed_filter_gets_the_room() -> None:
    first, second = pod("first", memory=600), pod("second", memory=600)
    async with serving(node("n1")) as client:
        for each in (first, second):
            assert (await client.filter(each, "n1"))["NodeNames"] == ["n1"]
        assert await client.bind(second, "n1") == ""
        await check_refused(client, first, "n1", wire_text(Code.INSUFFICIENT_MEMORY))
        assert await client.requested() == {CARD: held(1, 600)}


async def test_one_of_fifty_binds_at_once_gets_the_room() -> None:
    pods = [pod(f"p{number}", memory=600) for number in range(50)]
    async with serving(node("n1")) as client:
        answers = await asyncio.gather(*(client.filter(each, "n1") for each in pods))
        assert all(said["NodeNames"] == ["n1"] for said in answers)
        errors = await asyncio.gather(*(client.bind(each, "n1") for each in pods))
        assert errors.count("") == 1
        assert await client.requested() == {CARD: held(1, 600)}


async def test_as_many_of_sixty_four_binds_succeed_as_there_are_slots() -> None:
    cards = [card(f"GPU-{index}", index, slots=12) for index in range(4)]
    pods = [pod(f"p{number}", memory=10) for number in range(64)]
    async with serving(node("n1", cards)) as client:
        await asyncio.gather(*(client.filter(each, "n1") for each in pods))
        errors = await asyncio.gather(*(client.bind(each, "n1") for each in pods))
        assert errors.count("") == 48
        assert all("InsufficientSlots" in error for error in errors if error)
        assert await client.requested() == {f"GPU-{index}": held(12, 120) for index in range(4)}


async def test_a_pod_that_nobody_has_shown_is_not_known() -> None:
    async with serving(node("n1")) as client:
        await check_refused(client, pod(), "n1", "default/p", "uid-p", "not known")


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"PodName": "q"}, id="other name"),
        pytest.param({"PodNamespace": "other"}, id="other namespace"),
        pytest.param({"PodUID": "uid-q"}, id="other UID"),
    ],
)
async def test_name_and_uid_must_belong_together(changed: Json) -> None:
    async with serving(node("n1")) as client:
        await client.filter(pod(), "n1")
        before = await state(client)
        assert (await client.post("/bind", binding(pod(), "n1") | changed)).json()["Error"]
        assert await state(client) == before


async def test_a_node_that_is_not_known_takes_no_pod_that_asks_for_cards() -> None:
    async with serving(node("n1")) as client:
        await client.filter(pod(), "n1")
        await check_refused(client, pod(), "n2", "n2")


async def test_a_pod_that_has_ended_is_not_bound() -> None:
    async with serving(node("n1")) as client:
        await client.filter(pod(), "n1")
        await client.post("/api/v1/pods", pod(status=status_of("Failed")))
        await check_refused(client, pod(), "n1", "ended")


async def test_what_no_longer_fits_is_refused_with_the_text_that_filter_has_for_it() -> None:
    full = [
        bound("holder", "n1", CARD, 950),
        node("n1", allocatable="10"),
        node("n2", [card("GPU-n2-0")], allocatable="1"),
        bound("other", "n2", "GPU-n2-0"),
    ]
    async with serving(*full) as client:
        await client.filter(pod(), "n1", "n2")
        await check_refused(client, pod(), "n1", wire_text(Code.INSUFFICIENT_MEMORY))
        await check_refused(client, pod(), "n2", wire_text(Code.INSUFFICIENT_NODE_COUNT))


async def test_a_request_that_cannot_be_used_is_refused() -> None:
    asking = pod("p", [container("main", asks(1, "16Gi"))])
    async with serving(node("n1")) as client:
        await client.filter(asking, "n1")
        await check_refused(client, asking, "n1", wire_text(Code.INVALID_REQUEST))


async def test_quota_is_checked_again_at_bind() -> None:
    first, second = pod("first"), pod("second")
    async with serving(node("n1"), quota({"limits.nvidia.com/gpumem": "150"})) as client:
        for each in (first, second):
            assert (await client.filter(each, "n1"))["NodeNames"] == ["n1"]
        assert await client.bind(first, "n1") == ""
        await check_refused(client, second, "n1", wire_text(Code.QUOTA_EXCEEDED))
        await client.delete("first")
        assert await client.bind(second, "n1") == ""


async def test_a_pod_that_asks_for_none_is_bound_anywhere_and_holds_nothing() -> None:
    # kube-scheduler asks about every pod that names a managed resource, even with value 0.
    asking = pod("p", [container("main", asks("0"))])
    async with serving(node("n1")) as client:
        assert (await client.filter(asking, "n1", "cpu-only"))["NodeNames"] == ["n1", "cpu-only"]
        assert await client.bind(asking, "cpu-only") == ""
        assert await client.bind(asking, "cpu-only") == ""
        assert await client.bind(asking, "n1") != ""
        assert await client.requested() == {}
        assert await client.pods() == {}


async def test_a_posted_pod_is_bound_without_a_filter() -> None:
    async with serving(node("n1")) as client:
        await client.post("/api/v1/pods", pod())
        assert await client.bind(pod(), "n1") == ""


async def test_a_pending_pod_of_the_files_is_bound_without_a_filter() -> None:
    async with serving(node("n1"), pod()) as client:
        assert await client.bind(pod(), "n1") == ""
        assert await client.requested() == {CARD: held(1, 100)}


async def test_a_deleted_pod_is_known_again_once_filter_shows_it_again() -> None:
    async with serving(node("n1")) as client:
        await client.filter(pod(), "n1")
        await client.delete("p")
        await check_refused(client, pod(), "n1", "not known")
        await client.place(pod(), "n1")


async def test_the_pod_seen_longest_ago_is_forgotten_first() -> None:
    cluster = Cluster(Settings(), remembered_pods=2)
    cluster.load(make_cluster(node("n1"))._files)
    async with serving(cluster=cluster) as client:
        for name in ("first", "second", "third"):
            await client.filter(pod(name), "n1")
        await check_refused(client, pod("first"), "n1", "not known")
        await client.place(pod("first"), "n1")
        assert await client.bind(pod("third"), "n1") == ""
        await check_refused(client, pod("second"), "n1", "not known")


async def test_a_new_uid_under_the_same_name_replaces_the_old_pod() -> None:
    old, new = pod("p", memory=600), pod("p", memory=300, uid="uid-new")
    async with serving(node("n1")) as client:
        await client.place(old, "n1")
        await client.place(new, "n1")
        await check_refused(client, old, "n1", "not known")
        assert await client.requested() == {CARD: held(1, 300)}
        assert [entry["uid"] for entry in (await client.pods()).values()] == ["uid-new"]


async def test_a_filter_that_names_a_running_pod_with_another_uid_frees_nothing() -> None:
    whole = [container("main", asks(1, 100, 100))]
    running, forged = pod("p", whole), pod("p", whole, uid="uid-forged")
    async with serving(node("n1")) as client:
        await client.place(running, "n1")
        before = await client.requested()
        for each in (forged, forged | {"metadata": forged["metadata"] | {"name": "q"}}, forged):
            assert (await client.filter(each, "n1"))["NodeNames"] == []
        assert (await client.filter(pod("next", whole), "n1"))["NodeNames"] == []
        assert await client.requested() == before
        assert await client.bind(forged, "n1") != ""
        assert await client.bind(running, "n1") == ""
        assert (await client.delete("p")).json()["uid"] == "uid-p"
        assert await client.requested() == {}
        await client.place(forged, "n1")


async def test_many_forged_uids_of_one_name_push_no_running_pod_out_of_memory() -> None:
    cluster = Cluster(Settings(), remembered_pods=2)
    cluster.load(make_cluster(node("n1"))._files)
    async with serving(cluster=cluster) as client:
        await client.place(pod("p"), "n1")
        for number in range(5):
            await client.filter(pod("p", uid=f"uid-{number}"), "n1")
        assert await client.requested() == {CARD: held(1, 100)}
        assert await client.bind(pod("p"), "n1") == ""


async def test_an_allocation_that_a_pending_pod_brings_along_does_not_count() -> None:
    forged = pod("p", node="n1", allocation=rows([("GPU-n1-1", 1, 0)]), annotations={"hami.io/bind-phase": "success"})
    async with serving(node("n1", 2), bound("holder", "n1", "GPU-n1-1", 950)) as client:
        assert (await client.filter(forged, "n1"))["NodeNames"] == ["n1"]
        assert (await client.pods())["default/p"]["held"] == {}
        assert await client.bind(forged, "n1") == ""
        assert (await client.pods())["default/p"]["held"] == {CARD: held(1, 100)}


async def test_a_bound_pod_may_be_filtered_again_and_keeps_its_card() -> None:
    asking = pod("p", memory=900)
    async with serving(node("n1"), node("n2")) as client:
        await client.place(asking, "n1")
        before = await state(client)
        changed = asking | {"metadata": asking["metadata"] | {"annotations": {ALLOCATION: "junk"}}}
        for each in (asking, changed):
            assert (await client.filter(each, "n1", "n2"))["NodeNames"] == ["n1", "n2"]
        assert (await client.filter(pod("q", memory=900), "n1"))["NodeNames"] == []
        assert await client.bind(asking, "n1") == ""
        assert (await client.pods())["default/p"]["held"] == {CARD: held(1, 900)}
        await client.delete("q")
        assert await state(client) == before


async def test_a_card_taken_whole_is_not_shared() -> None:
    whole, share = pod("whole", [container("main", asks(1, 100, 100))]), pod("share")
    async with serving(node("n1")) as client:
        for each in (whole, share):
            assert (await client.filter(each, "n1"))["NodeNames"] == ["n1"]
        assert await client.bind(share, "n1") == ""
        await check_refused(client, whole, "n1", "ExclusiveConflict")
        await client.delete("share")
        await client.place(whole, "n1")
        assert (await client.filter(pod("later"), "n1"))["FailedNodes"].keys() == {"n1"}
