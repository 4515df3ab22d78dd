"""filter, prioritize and filter-dryrun are questions: they leave no trace.

They exist because kube-scheduler asks about a pod many times, in any order, often without a bind to follow. They must
not depend on what was asked before. Invariant: the same question on the same state gets the same bytes.
"""

import pytest

from tests.extender.objects import asks, bound, card, container, node, pod, quota
from tests.extender.serving import Answer, asked, serving


async def test_prioritize_does_not_depend_on_which_nodes_filter_was_asked_about() -> None:
    async with serving(node("n1"), node("n2"), node("n3")) as client:
        fresh = await client.post("/prioritize", asked(pod("p"), "n1", "n2", "n3"))
    async with serving(node("n1"), node("n2"), node("n3")) as client:
        await client.filter(pod("p"), "n1", "n2")
        assert await client.post("/prioritize", asked(pod("p"), "n1", "n2", "n3")) == fresh
        assert [host["Score"] for host in await client.prioritize(pod("p"), "n3", "nowhere")] == [10]


async def test_prioritize_sees_a_bind_that_came_after_its_filter() -> None:
    async with serving(node("n1"), node("n2")) as client:
        await client.filter(pod("first", memory=600), "n1", "n2")
        await client.place(pod("second", memory=600), "n1")
        assert await client.prioritize(pod("first", memory=600), "n1", "n2") == [{"Host": "n2", "Score": 10}]


async def test_the_same_question_is_answered_from_memory_until_the_state_changes() -> None:
    async with serving(node("n1")) as client:
        asking = pod("p", memory=600)
        assert (await client.filter(asking, "n1"))["NodeNames"] == ["n1"]
        await client.post("/api/v1/pods", bound("holder", "n1", "GPU-n1-0", 600))
        assert (await client.filter(asking, "n1"))["FailedNodes"].keys() == {"n1"}
        await client.delete("holder")
        assert (await client.filter(asking, "n1"))["NodeNames"] == ["n1"]


async def test_the_fuller_node_is_preferred_and_a_policy_turns_it_round() -> None:
    spread = pod("p", annotations={"hami.io/node-scheduler-policy": "spread"})
    async with serving(node("n1"), node("n2"), bound("holder", "n2", "GPU-n2-0")) as client:
        assert [host["Host"] for host in await client.prioritize(pod("p"), "n1", "n2")] == ["n2", "n1"]
        assert [host["Host"] for host in await client.prioritize(spread, "n1", "n2")] == ["n1", "n2"]


async def test_equal_nodes_are_scored_by_name() -> None:
    names = [f"n{number:02}" for number in range(15)]
    async with serving(*map(node, names)) as client:
        scores = await client.prioritize(pod("p"), *reversed(names))
    assert scores == [{"Host": name, "Score": 10 - rank} for rank, name in enumerate(names[:10])]


async def test_a_full_namespace_is_refused_everywhere_and_for_good() -> None:
    async with serving(node("n1"), node("n2"), quota({"requests.nvidia.com/gpu": "0"})) as client:
        said = await client.filter(pod("p"), "n1", "n2")
        assert (said["NodeNames"], said["FailedNodes"]) == ([], {})
        assert {text.partition(":")[0] for text in said["FailedAndUnresolvableNodes"].values()} == {"QuotaExceeded"}
        assert (await client.filter(pod("p", namespace="other"), "n1", "n2"))["NodeNames"] == ["n1", "n2"]


@pytest.mark.parametrize(
    "quantities",
    [
        pytest.param(asks("-1"), id="a negative count"),
        pytest.param(asks("1500m"), id="a fractional count"),
        pytest.param(asks(1, "16Gi"), id="memory in bytes"),
        pytest.param(asks(1, "1.5"), id="fractional memory"),
        pytest.param(asks(1, "2147483648"), id="memory beyond int32"),
        pytest.param(asks(1, percentage="101"), id="a percentage above 100"),
        pytest.param(asks(1, percentage="4294967346"), id="a percentage that would wrap to 50"),
        pytest.param(asks(1, percentage="-1"), id="a negative percentage"),
        pytest.param(asks(1, cores="-5"), id="negative cores"),
        pytest.param(asks(1, "NaN"), id="no number"),
    ],
)
async def test_requests_outside_their_range_are_invalid_on_every_node(quantities: dict[str, object]) -> None:
    asking = pod("p", [container("main", quantities)])
    async with serving(node("n1"), node("n2")) as client:
        said = await client.filter(asking, "n1", "n2")
    assert (said["NodeNames"], said["FailedNodes"]) == ([], {})
    assert {text.partition(":")[0] for text in said["FailedAndUnresolvableNodes"].values()} == {"InvalidRequest"}


async def test_zero_means_not_asked() -> None:
    zeros = pod("p", [container("main", asks("1", "0", "0", "0"))])
    async with serving(node("n1"), bound("holder", "n1", "GPU-n1-0", 1)) as client:
        assert (await client.filter(zeros, "n1"))["FailedNodes"].keys() == {"n1"}  # it means the whole card


async def test_a_dry_run_leaves_nothing_behind() -> None:
    async with serving(node("n1")) as client:
        before = await client.send("GET", "/metrics")
        said = (await client.post("/filter-dryrun", asked(pod(), "n1", "n2"))).json()
        assert (said["NodeNames"], said["FailedAndUnresolvableNodes"].keys()) == (["n1"], {"n2"})
        assert await client.bind(pod(), "n1") != ""
        assert await client.pods() == {}
        assert _without_durations(await client.send("GET", "/metrics")) == _without_durations(before)


async def test_a_dry_run_judges_nodes_that_exist_in_the_request_only() -> None:
    template = node("template-node", [card("GPU-t", memory=5000)])
    async with serving(node("n1")) as client:
        body = {"Pod": pod("p", memory=4000), "Nodes": {"metadata": {}, "items": [template]}, "NodeNames": None}
        said = (await client.post("/filter-dryrun", body)).json()
        assert said["Nodes"]["items"] == [template]
        assert (await client.filter(pod("p", memory=4000), "template-node"))["NodeNames"] == []


@pytest.mark.parametrize("memory, passed", [(600, ["n1", "n2"]), (601, ["n2"])], ids=["as much as is left", "more"])
async def test_a_dry_run_takes_devices_from_the_request_and_usage_from_the_cache(
    memory: int, passed: list[str]
) -> None:
    nodes = {"metadata": {}, "items": [node("n1", memory=1500)]}
    async with serving(node("n1"), node("n2"), bound("holder", "n1", "GPU-n1-0", 900)) as client:
        body = asked(pod("p", memory=memory), "n1", "n2") | {"Nodes": nodes}
        said = (await client.post("/filter-dryrun", body)).json()
    assert (said["NodeNames"], said["Error"]) == (passed, "")


async def test_a_dry_run_names_the_node_object_that_it_cannot_read() -> None:
    body = asked(pod()) | {"Nodes": {"items": [node("n1") | {"status": []}]}, "NodeNames": None}
    async with serving() as client:
        assert "n1" in (await client.post("/filter-dryrun", body)).json()["Error"]


def _without_durations(answer: Answer) -> list[str]:
    # What the process uses of the machine changes on its own.
    changing = "duration", "process_", "python_"
    return [line for line in answer.body.decode().splitlines() if not any(each in line for each in changing)]


@pytest.mark.parametrize("number, fits", [(64, True), (65, False)])
async def test_so_many_containers_may_ask_for_cards(*, number: int, fits: bool) -> None:
    """Each container is fitted on all nodes after the others; those that ask for nothing cost nothing."""
    asking = [container(f"c{at}", asks(1, 1)) for at in range(number)]
    silent = [container(f"s{at}") for at in range(100)]
    async with serving(node("n1", [card("GPU-a", slots=100)])) as client:
        said = await client.filter(pod("p", [*asking, *silent]), "n1")
        assert said["NodeNames"] == (["n1"] if fits else [])
        if not fits:
            assert said["FailedAndUnresolvableNodes"]["n1"].startswith("InvalidRequest")
