"""Quotas as users meet them: over HTTP and on the command line, with manifests.

It exists because a limit must be right where users meet it, not only inside. It must not know how charges are kept.
Invariant: the numbers are those of user_reports A40 to A55 and of the seed's examples, and every refusal names the
quota.
"""

import json
from pathlib import Path

import pytest

from tests.extender.inside import run_inside
from tests.extender.objects import (
    COUNT,
    MEMORY,
    STEADY,
    Json,
    asks,
    bound,
    card,
    container,
    listed,
    node,
    phased,
    pod,
    quota,
    rows,
    sidecar,
    terminated,
)
from tests.extender.serving import serving

LIMIT = f"limits.{MEMORY}"
GIB = 1024


def half(name: str = "half", **other: object) -> Json:
    return pod(name, [container("main", asks(1, percentage=50))], **other)  # type: ignore[arg-type]  # as for `pod`


def mixed(name: str = "n1") -> Json:
    return node(name, [card("GPU-small", 0, memory=16_384), card("GPU-large", 1, memory=49_152)])


async def test_the_seed_s_examples_are_refused_and_charged() -> None:
    limits = quota({LIMIT: 24 * GIB})
    init = pod("init", [container("main", asks(1, 4 * GIB))], inits=[container("init", asks(1, 30 * GIB))])
    both = pod("both", [container("main", asks(1, 10 * GIB))], inits=[sidecar("side", asks(1, 10 * GIB))])
    async with serving(node("n1", memory=80 * GIB), limits) as client:
        refused = await client.filter(init, "n1")
        assert refused["FailedAndUnresolvableNodes"]["n1"].startswith("QuotaExceeded: ")
        await client.place(both, "n1")
        (row,) = await client.get("/api/v1/quotas")
        # The refused pod exists too, and the API server charges pods from their creation on.
        assert (row["hard"], row["used"], row["api_charge"]) == (24 * GIB, 20 * GIB, (30 + 20) * GIB)


async def test_a54_a_percentage_is_judged_on_each_node_s_cards_by_filter_and_bind() -> None:
    nodes = node("small", memory=16_384), node("large", memory=49_152)
    async with serving(*nodes, quota({LIMIT: 20_000})) as client:
        answer = await client.filter(half(), "small", "large")
        assert answer["NodeNames"] == ["small"]
        # `explain` gives the numbers and the quota's name; see below.
        refusal = answer["FailedAndUnresolvableNodes"]["large"]
        assert refusal.startswith("QuotaExceeded: namespace's GPU quota is exceeded")
        assert await client.bind(half(), "large") == refusal
        await client.place(half(), "small")
        (row,) = await client.get("/api/v1/quotas")
        assert (row["used"], row["api_charge"]) == (8_192, 0)


async def test_a54_bind_takes_the_card_that_keeps_the_quota() -> None:
    async with serving(mixed(), quota({LIMIT: 20_000})) as client:
        await client.place(half(), "n1")
        (entry,) = await client.get("/api/v1/pods")
        assert entry["held"].keys() == {"GPU-small"}


async def test_a54_a_whole_card_is_charged_with_its_memory() -> None:
    async with serving(node("n1", memory=16_384), quota({LIMIT: 16_383})) as client:
        asking = pod("whole", [container("main", asks(1))])
        assert (await client.filter(asking, "n1"))["NodeNames"] == []
    async with serving(node("n1", memory=16_384), quota({LIMIT: 16_384})) as client:
        await client.place(asking, "n1")
        (row,) = await client.get("/api/v1/quotas")
        assert row["used"] == 16_384


async def test_b1_the_filter_judges_the_whole_pod() -> None:
    init, app = container("init", asks(1, 100)), asks(1, 8000)
    pods = [
        pod("two", [container("a", app), container("b", app)], inits=[init]),
        pod("side", [container("a", app)], inits=[sidecar("side", app)]),
    ]
    async with serving(node("n1", 2, memory=20_000), quota({LIMIT: 10_000})) as client:
        for each in pods:
            assert (await client.filter(each, "n1"))["NodeNames"] == []
            assert "QuotaExceeded" in await client.bind(each, "n1")


async def test_a46_a_deleted_pod_gives_its_charge_back() -> None:
    async with serving(node("n1", memory=20_000), quota({LIMIT: 8000})) as client:
        await client.place(pod("a", memory=8000), "n1")
        assert (await client.filter(pod("b", memory=8000), "n1"))["NodeNames"] == []
        await client.delete("a")
        await client.place(pod("b", memory=8000), "n1")


async def test_a_peak_that_comes_back_is_reported_and_keeps_others_out() -> None:
    async with serving(node("n1"), quota({LIMIT: 30})) as client:
        await client.create(phased(STEADY))
        await client.place(pod("q", memory=15), "n1")
        assert (await client.get("/api/v1/verify"))["problems"] == []
        await client.create(phased(), 200)
        (problem,) = (await client.get("/api/v1/verify"))["problems"]
        assert (problem["code"], problem["object"]) == ("Overcommitted", "resourcequota default/gpus")
        assert all(text in problem["message"] for text in (MEMORY, "hard 30", "used 37"))
        (row,) = await client.get("/api/v1/quotas")
        assert row["exceeded"]
        assert (await client.filter(pod("r", memory=1), "n1"))["NodeNames"] == []
        await client.create(phased(STEADY), 200)
        assert (await client.get("/api/v1/verify"))["problems"] == []
        assert (await client.filter(pod("r", memory=1), "n1"))["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    "spec, limited",
    [
        ({}, True),
        ({"priorityClassName": "low"}, True),
        ({"priorityClassName": "high"}, False),
    ],
)
async def test_a_quota_with_scopes_limits_the_pods_that_it_takes(spec: Json, limited: bool) -> None:
    expression = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}
    limits = quota({LIMIT: 10}, scopeSelector={"matchExpressions": [expression]})
    asking = pod("p", memory=11)
    asking["spec"] |= spec
    async with serving(node("n1"), limits) as client:
        assert (await client.filter(asking, "n1"))["NodeNames"] == ([] if limited else ["n1"])


async def test_one_namespace_s_rows_say_why_the_charges_differ() -> None:
    limits = quota({f"requests.{COUNT}": 9, LIMIT: 1000}), quota({LIMIT: 9}, namespace="other")
    async with serving(node("n1", 2), *limits) as client:
        await client.place(pod("two", [container("main", asks(2, 100))]), "n1")
        await client.create(pod("waiting", memory=40))
        count, memory = await client.get("/api/v1/quotas?namespace=default")
        assert (count["used"], count["api_charge"]) == (2, 3)
        assert count["differs"] == ["not bound yet, so only the API server charges them (1 pod)"]
        assert (memory["used"], memory["api_charge"]) == (200, 140)
        assert memory["differs"] == [
            "not bound yet, so only the API server charges them (1 pod)",
            "the API server does not multiply by the count of cards (1 pod)",
        ]
        assert [row["differs"] for row in await client.get("/api/v1/quotas?namespace=other")] == [[]]
        assert await client.get("/api/v1/quotas?namespace=none") == []


# -- explain -----------------------------------------------------------------------------------------------------------


def explained(tmp_path: Path, asking: Json, *cluster: Json, status: int = 0, output: str = "json") -> str:
    path = tmp_path / "cluster.json"
    path.write_text(listed(*cluster), encoding="utf-8")
    result = run_inside("explain", "-f", "-", "--cluster", path, "-o", output, stdin=json.dumps(asking).encode())
    assert result.status == status
    return result.out.decode()


def quotas_of(text: str) -> list[Json]:
    rows: list[Json] = json.loads(text).get("quotas", [])
    return rows


def test_explain_shows_what_the_pod_would_add_and_what_the_api_server_would_charge(tmp_path: Path) -> None:
    two = pod("two", [container("main", asks(2, 100))])
    limits = quota({f"requests.{MEMORY}": 1000, f"requests.{COUNT}": 4})
    count, memory = quotas_of(explained(tmp_path, two, node("n1", 2), bound("p", "n1", "GPU-n1-0", 300), limits))
    assert (count["used"], count["adds"], count["api_charge"], count["api_adds"]) == (1, 2, 1, 2)
    assert (memory["used"], memory["adds"], memory["api_charge"], memory["api_adds"]) == (300, 200, 300, 100)
    assert count["differs"] == []
    assert memory["differs"] == ["the API server does not multiply by the count of cards"]


def test_explain_says_why_the_api_server_charges_the_namespace_another_number(tmp_path: Path) -> None:
    inits = [container("init", asks(1, 20))]
    shares = rows([("GPU-n1-0", 20, 0)], [("GPU-n1-0", 10, 0)])
    done = pod("done", [container("main", asks(1, 10))], inits=inits, node="n1", allocation=shares)
    done["status"] = {"phase": "Running", "initContainerStatuses": [terminated("init")]}
    objects = node("n1"), done, pod("waiting", memory=40), quota({f"requests.{MEMORY}": 1000})
    (row,) = quotas_of(explained(tmp_path, pod("p"), *objects))
    assert (row["used"], row["api_charge"], row["adds"], row["api_adds"]) == (10, 60, 100, 100)
    assert row["differs"] == [
        "not bound yet, so only the API server charges them (1 pod)",
        "their inits are over, which the API server charges to the end (1 pod)",
    ]


def test_explain_leaves_the_pod_s_own_booking_out_on_both_sides(tmp_path: Path) -> None:
    (row,) = quotas_of(
        explained(tmp_path, pod("p", memory=300), node("n1"), bound("p", "n1", "GPU-n1-0", 300), quota({LIMIT: 300}))
    )
    assert (row["used"], row["api_charge"], row["adds"], row["enforced_by_api"]) == (0, 0, 300, False)


def test_explain_says_what_a_percentage_adds_on_each_node(tmp_path: Path) -> None:
    nodes = node("small", memory=16_384), node("large", memory=49_152)
    text = explained(tmp_path, half(), *nodes, quota({LIMIT: 20_000}))
    (row,) = quotas_of(text)
    assert (row["adds"], row["at_least"], row["api_adds"]) == (1, True, 0)
    large, small = json.loads(text)["nodes"]
    assert small["total"] == {"count": 1, "memory": 8_192, "cores": 0}
    assert [reason["code"] for reason in large["reasons"]] == ["QuotaExceeded"]
    assert all(part in large["reasons"][0]["message"] for part in ("default/gpus", "20000", "24576"))


def test_explain_for_a_person_has_a_line_per_limit(tmp_path: Path) -> None:
    text = explained(tmp_path, half(), node("n1"), quota({LIMIT: 700}), output="text")
    line = next(line for line in text.splitlines() if line.startswith("gpus"))
    assert line.split() == ["gpus", MEMORY, "700", "0", "at", "least", "1", "0", "0"]
    assert "known on the cards only" in text


def test_a_namespace_without_limits_has_none_to_show(tmp_path: Path) -> None:
    assert quotas_of(explained(tmp_path, pod("p"), node("n1"), quota({LIMIT: 1}, namespace="other"))) == []
