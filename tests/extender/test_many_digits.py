"""Numbers of thousands of digits stop nothing, wherever numbers come in from outside.

It exists because Python converts at most 4,300 digits and raises beyond: a pod whose resourceVersion had more was not
counted. It must not know how numbers are read. Invariant: no number raises, and a fault in one object leaves the others
alone.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cli import main
from extender.cluster import is_older
from extender.cluster.loading import collect
from extender.config import Settings
from extender.convert.manifests import parse_manifests
from extender.kube.client import Answer, WatchFailed
from extender.kube.listing import Expired
from extender.kube.watch_event import read_event
from extender.live.leading.lease import Failed, Lease, _read
from tests.extender.objects import ALLOCATION, REGISTER, Json, asks, bound, container, listed, node, pod, quota
from tests.extender.serving import serving
from tests.live.harness import running

DIGITS = "9" * 5_000
numbers = st.integers(0, 10**40)


@given(numbers, numbers, st.integers(0, 3))
def test_versions_are_compared_as_the_numbers_that_they_are(one: int, other: int, zeros: int) -> None:
    assert is_older(str(one), f"{'0' * zeros}{other}") is (one < other)


def test_versions_of_thousands_of_digits_and_of_other_digits() -> None:
    assert is_older(DIGITS, f"1{DIGITS}")
    assert not is_older(f"1{DIGITS}", DIGITS)
    assert not is_older("\u0661", "2")
    assert not is_older("", "2")


async def test_a_pod_with_a_version_of_thousands_of_digits_is_counted() -> None:
    async with running(node("n1")) as bench:
        made = bench.kube.create(pod("p", memory=900))
        before = json.loads(json.dumps(made))
        before["metadata"]["resourceVersion"] = DIGITS
        await bench.scheduler.filter(before)
        bench.kube.bind(
            "p", "n1", {ALLOCATION: bound("x", "n1", "GPU-n1-0", 900)["metadata"]["annotations"][ALLOCATION]}
        )
        await bench.agrees()
        assert (await bench.scheduler.filter(bench.kube.create(pod("q", memory=900)))).passed == []


def objects() -> list[Json]:
    limits = asks() | {"limits": {"nvidia.com/gpu": DIGITS, "nvidia.com/gpumem": DIGITS}}
    return [
        pod("p1", [container("c", limits)]),
        pod("p2", [container("c", {"limits": {"nvidia.com/gpu": f"1e{DIGITS[:4000]}"}})]),
        pod("p3", annotations={"hami.io/device-scoring-weights": f"memory={DIGITS}"}),
        *(
            bound(f"a{number}", "n1", "GPU-n1-0")
            | {"metadata": {"name": f"a{number}", "annotations": {ALLOCATION: text}}}
            for number, text in enumerate(
                [
                    f"GPU-n1-0,NVIDIA,{DIGITS},0:;",
                    f"GPU-n1-0,NVIDIA,-{DIGITS},0:;",
                    f"GPU-n1-0,NVIDIA,1,{DIGITS}:;",
                    f"GPU-n1-0[{DIGITS}],NVIDIA,1,0:;",
                ]
            )
        ),
        node("n2", allocatable=DIGITS),
        node("n3", annotations={REGISTER: f"GPU-a,{DIGITS},1,100,A,0,true:"}),
        node("n4", annotations={REGISTER: f'[{{"id":"GPU-a","index":{DIGITS},"count":{DIGITS}}}]'}),
        node("n5", annotations={"hami.io/node-nvidia-score": f'[{{"uuid":"GPU-n5-0","score":{{"GPU-x":{DIGITS}}}}}]'}),
        quota({"requests.nvidia.com/gpu": DIGITS, "limits.nvidia.com/gpumem": f"1e{DIGITS[:4000]}"}),
    ]


async def test_texts_of_thousands_of_digits_in_objects_stop_nobody() -> None:
    async with serving(node("n1"), *objects()) as client:
        for path in ("nodes", "pods", "verify", "quotas"):
            await client.get(f"/api/v1/{path}")
        assert (await client.send("GET", "/metrics")).status == 200
        for forged in objects():
            if forged["kind"] == "Pod":
                answer = await client.post("/filter", {"Pod": forged, "NodeNames": ["n1"]})
                assert answer.status == 200
        assert (await client.filter(pod("q"), "n1"))["Error"] == ""


@pytest.mark.parametrize(
    "spec",
    [
        f"{{priority: 0x{'f' * 6000}}}",
        f"{{containers: {{a: 0x{'f' * 6000}}}}}",
        f"{{containers: [{{name: a, resources: {{limits: {{nvidia.com/gpu: 0x{'f' * 6000}}}}}}}]}}",
    ],
)
def test_numbers_of_yaml_that_no_json_can_hold(spec: str) -> None:
    text = f"kind: Pod\nmetadata: {{name: p}}\nspec: {spec}\n---\nkind: Pod\nmetadata: {{name: q}}\n"
    found = collect(parse_manifests(text.encode(), "-f", "x"), Settings())
    assert [each.name for each in found.pods][-1] == "q"
    assert all(len(problem.message) < 1_000 for problem in found.problems)


@pytest.mark.parametrize("field", ["leaseDurationSeconds", "leaseTransitions"])
@pytest.mark.parametrize("digits", [30, 400, 5_000])
def test_a_lease_with_such_a_number_is_none(field: str, digits: int) -> None:
    spec = f'{{"holderIdentity":"x","{field}":{"9" * digits}}}'
    lease = _read(Answer(200, b'{"metadata":{"resourceVersion":"1","uid":"u"},"spec":%b}' % spec.encode()))
    assert isinstance(lease, Failed)
    kept = _read(Answer(200, b'{"metadata":{"resourceVersion":"1"},"spec":{"leaseDurationSeconds":15}}'))
    assert isinstance(kept, Lease)


@pytest.mark.parametrize("digits", [30, 400, 5_000])
def test_an_error_of_the_watch_with_such_a_number_is_one_of_the_known_failures(digits: int) -> None:
    number = b"9" * digits
    for status in (b'{"code":500,"details":{"retryAfterSeconds":%b}}' % number, b'{"code":%b}' % number):
        with pytest.raises((Expired, WatchFailed)):
            read_event(b'{"type":"ERROR","object":%b}' % status)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--memory-factor", DIGITS],
        ["--reserved-memory", f"T4={DIGITS}"],
        ["--port", DIGITS],
    ],
)
def test_a_flag_with_such_a_number_is_refused_in_one_line(arguments: list[str], capsys: Any) -> None:  # noqa: ANN401
    with pytest.raises(SystemExit) as ended:
        main(["serve", *arguments])
    error = capsys.readouterr().err
    assert ended.value.code == 2
    assert error.count("\n") == 1


def test_json_of_every_kind_decodes_or_is_refused() -> None:
    body = listed(node("n1")).replace('"kind"', f'"number": {DIGITS}, "kind"')
    assert [each.name for each in collect(parse_manifests(body.encode(), "-f", "x"), Settings()).nodes] == ["n1"]
    assert msgspec.json.decode(body.encode(), type=msgspec.Raw)
