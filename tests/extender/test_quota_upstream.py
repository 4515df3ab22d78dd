"""What the API server's own quota does (upstream_formula 8) and how it reads numbers (12), beside ours.

It exists because both quotas count the same pods, and must agree where their rules do. It must not repeat the formula,
whose cases are in test_upstream_cases. Invariant: for pods with counts of 1, absolute memory and no shrink both charges
are equal, and both verdicts are.
"""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.holdings import Total, requested_total
from accounting.pod import Pod
from accounting.quota.limits import QuotaTable
from accounting.quota.objects import managed_resources, read_quota
from accounting.vendor import NVIDIA
from extender.config import Settings
from extender.convert.pod import convert_pod
from extender.wire import core_v1
from tests.extender.objects import (
    COUNT,
    MEMORY,
    Json,
    asks,
    bound,
    container,
    node,
    phased,
    pod,
    quota,
    sidecar,
    status_of,
)
from tests.extender.serving import Client, serving

UNREADABLE: tuple[object, ...] = ("-1", -1, "1K", "1ki", "", "abc", "1GPU", "0x1", "1_000", True, "NaN", [], {})
REQUESTS = f"requests.{MEMORY}"


def converted(manifest: Json) -> Pod:
    return convert_pod(msgspec.json.decode(msgspec.json.encode(manifest), type=core_v1.Pod), Settings())


async def charged(client: Client) -> tuple[int, int]:
    (row,) = await client.get("/api/v1/quotas")
    return row["used"], row["api_charge"]


async def test_upstream_8_pending_and_gated_pods_are_charged_from_their_creation_on() -> None:
    gated = pod("gated", memory=30)
    gated["spec"]["schedulingGates"] = [{"name": "wait"}]
    async with serving(node("n1"), quota({REQUESTS: 1000})) as client:
        await client.create(pod("pending", memory=20))
        await client.create(gated)
        assert await charged(client) == (0, 50)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_upstream_8_an_ended_pod_is_not_charged_and_a_deleting_one_is(phase: str) -> None:
    ending = bound("p", "n1", "GPU-n1-0", 100)
    ending["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"
    async with serving(node("n1"), quota({REQUESTS: 1000}), ending) as client:
        assert await charged(client) == (100, 100)
        await client.create(ending | {"status": {"phase": phase}}, 200)
        assert await charged(client) == (0, 0)


async def test_upstream_8_the_api_server_s_charge_is_constant_through_a_pod_s_life() -> None:
    async with serving(node("n1"), quota({REQUESTS: 1000})) as client:
        await client.create(phased())
        assert await charged(client) == (22, 22)
        for status in (status_of("Running"), phased()["status"]):
            await client.create(phased(status), 200)
            assert (await charged(client))[1] == 22


async def test_upstream_8_overhead_is_charged_by_the_api_server_alone() -> None:
    heavy = bound("p", "n1", "GPU-n1-0", 100)
    heavy["spec"]["overhead"] = {MEMORY: "7"}
    async with serving(node("n1"), quota({REQUESTS: 1000}), heavy) as client:
        assert await charged(client) == (100, 107)


async def test_upstream_8_only_requests_are_enforced_there_and_both_here() -> None:
    limits = quota({f"limits.{MEMORY}": 100, f"requests.{COUNT}": 3})
    async with serving(node("n1"), limits) as client:
        rows = {row["resource"]: row["enforced_by_api"] for row in await client.get("/api/v1/quotas")}
        assert rows == {MEMORY: False, COUNT: True}
        assert (await client.filter(pod("p", memory=101), "n1"))["NodeNames"] == []


@pytest.mark.parametrize(
    "raw, limit",
    [
        *((raw, 1) for raw in ("1", 1, 1.0, "1.0", "01", "+1", " 1 ", "1.", "1000m", "1000000u", "10e-1")),
        *((raw, 0) for raw in ("0", "-0", ".", ".0", None)),
        *((raw, 0) for raw in ("500m", 0.5, ".5", "1u", "1n", "0.0001")),
        *((raw, 1) for raw in ("1.5", "1.0000000001", "0.9999999999")),
        *(("1k", 1000), ("1Ki", 1024), (1e1, 10), ("2e0", 2)),
        *((raw, 2**63 - 1) for raw in ("9223372036854775807", "8Ei", "10E", "1e19")),
        ("9E", 9 * 10**18),
        *((raw, None) for raw in UNREADABLE),
    ],
    ids=repr,
)
def test_upstream_12_a_limit_is_read_as_the_api_server_reads_it(raw: object, limit: int | None) -> None:
    """Fractions are legal in a limit; a limit of half a card leaves room for none."""
    read = read_quota("default", "q", {f"requests.{COUNT}": raw}, NVIDIA)
    assert dict(read.hard) == ({} if limit is None else {COUNT: limit})
    assert len(read.problems) == (limit is None)


@st.composite
def equal_pods(draw: st.DrawFn) -> Json:
    """Draw pods for which both numbers are equal: every count is 1, memory is absolute, and cores are asked for."""

    def resources() -> Json:
        return asks(1, draw(st.integers(1, 20)), draw(st.integers(1, 30))) if draw(st.booleans()) else {}

    inits = [
        sidecar(f"i{at}", resources()) if draw(st.booleans()) else container(f"i{at}", resources())
        for at in range(draw(st.integers(0, 4)))
    ]
    return pod("p", [container(f"c{at}", resources()) for at in range(draw(st.integers(1, 3)))], inits=inits)


@given(equal_pods(), st.tuples(*[st.integers(0, 60)] * 3), st.tuples(*[st.integers(0, 40)] * 3))
def test_upstream_8_both_charges_and_both_verdicts_are_one(
    manifest: Json, hard: tuple[int, ...], used: tuple[int, ...]
) -> None:
    asking = converted(manifest)
    names, peak = managed_resources(NVIDIA), requested_total(asking.containers)[0]
    assert dict(zip(names, peak, strict=True)) == dict.fromkeys(names, 0) | dict(asking.api_charge)
    table = QuotaTable(NVIDIA)
    table.put(
        read_quota("default", "q", {f"requests.{name}": limit for name, limit in zip(names, hard, strict=True)}, NVIDIA)
    )
    ours = {each.resource for each in table.check(asking, lambda _: Total(*used)).exceeded}
    theirs = {
        name
        for name, limit, have in zip(names, hard, used, strict=True)
        if (more := dict(asking.api_charge).get(name, 0)) and have + more > limit
    }
    assert ours == theirs


def test_upstream_8_a_scope_is_a_fact_of_the_pod_as_it_is_now() -> None:
    one = converted(pod("p"))
    later = converted(pod("p") | {"spec": pod("p")["spec"] | {"activeDeadlineSeconds": 5}})
    assert later._replace(scope=one.scope) == one
    assert later.scope.terminating
