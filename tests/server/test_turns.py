"""Short requests are answered while long lists are made.

They exist because GET /api/v1/pods over 36,000 pods once held the loop for seconds. They must not bound times by a
clock: they compare the order of answers, and the CPU of one step.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from itertools import pairwise

import aiohttp
import pytest

from extender.cluster import Cluster
from extender.reports import VerifyLists, node_entries, pod_entries
from extender.server.turns import Turns, json_array
from tests.extender.objects import bound, node, pod, rows, status_of
from tests.extender.serving import make_cluster, serving

_NODES, _PODS_PER_NODE = 250, 8
_PATHS = ["/api/v1/pods", "/api/v1/nodes", "/api/v1/verify"]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Many pods, in no order of their names, half of them with a problem."""
    nodes = [node(f"n{number}") for number in range(_NODES)]
    pods = [
        bound(f"p{(at * 7919) % 100_003}", f"n{number}", f"GPU-n{number}-0" if at % 2 else "GPU-lost", 1)
        for number in range(_NODES)
        for at in range(number * _PODS_PER_NODE, (number + 1) * _PODS_PER_NODE)
    ]
    return make_cluster(*nodes, *pods)


@pytest.mark.parametrize("path", _PATHS)
async def test_short_requests_are_answered_while_a_list_is_made(cluster: Cluster, path: str) -> None:
    async with serving(cluster=cluster) as client:
        listed = asyncio.create_task(client.send("GET", path))
        answered = 0
        while not listed.done():
            assert (await client.send("GET", "/livez")).status == 200
            answered += 1
        assert (await listed).status == 200
    assert answered >= 5


@pytest.mark.parametrize("path", _PATHS)
async def test_a_list_shows_one_moment(cluster: Cluster, path: str) -> None:
    async with serving(cluster=cluster) as client:
        whole = (await client.send("GET", path)).json()
        async with client.opened(path) as response:
            # The head has come, so the first step is done.
            late = bound("zz-late", "n1", "GPU-n1-0", 1)
            await client.create(late)
            assert json.loads(await response.read()) == whole
        assert (await client.delete("zz-late")).status == 200


def test_every_step_of_a_list_is_short(cluster: Cluster) -> None:
    """The first step copies tables; the CPU of each stays below a turn and a half of the loop's 10 ms."""
    lists = [pod_entries(cluster), node_entries(cluster), *(entries for _, entries in VerifyLists(cluster).by_name())]
    for entries in lists:
        assert max(_cpu_of_steps(json_array(entries))) < 0.015


def _cpu_of_steps(steps: Iterator[bytes]) -> Iterator[float]:
    def stamps() -> Iterator[float]:
        yield time.thread_time()
        for _ in steps:
            yield time.thread_time()

    return (later - earlier for earlier, later in pairwise(stamps()))


async def test_between_two_turns_of_any_answers_the_loop_goes_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four lists cost a filter no more than one."""
    monkeypatch.setattr("extender.server.turns._TURN_SECONDS", 0.0)
    turns, rounds, met = Turns(), 0, list[int]()

    def steps() -> Iterator[int]:
        for number in range(5):
            met.append(rounds)
            yield number

    async def taken() -> list[int]:
        return [each async for batch in turns.taken(steps()) for each in batch]

    answers = [asyncio.create_task(taken()) for _ in range(4)]
    while not all(answer.done() for answer in answers):
        rounds += 1
        await asyncio.sleep(0)
    assert [await answer for answer in answers] == [[0, 1, 2, 3, 4]] * 4
    assert len(set(met)) == len(met) == 20


async def test_a_list_that_cannot_be_made_is_broken_off(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_pod: object, _record: object) -> dict[str, object]:
        raise ValueError("a bug")

    async with serving(cluster=cluster) as client:
        monkeypatch.setattr("extender.reports.render.pod_entry", broken)
        with pytest.raises(aiohttp.ClientError):
            await client.send("GET", "/api/v1/pods")
        monkeypatch.undo()
        assert (await client.send("GET", "/api/v1/pods")).status == 200


@pytest.mark.parametrize(
    "entries, text", [([], "[]"), ([None], "[]"), ([1], "[1]"), ([None, 1, None, 2, None], "[1,2]"), ([[]], "[[]]")]
)
def test_an_array_in_fragments(entries: list[object], text: str) -> None:
    assert b"".join(json_array(entries)).decode() == text


def test_the_lists_are_in_order() -> None:
    names = ["b", "a", "c", "aa"]
    lost = pod("x", node="n1", allocation=rows([("GPU-lost", 9, 0)]), status=status_of("Running"))
    cluster = make_cluster(node("n2"), node("n1"), lost, *(bound(name, "n1", "GPU-n1-0", 1) for name in names))
    shown = [entry["pod"] for entry in pod_entries(cluster) if entry is not None]
    assert shown == sorted(shown)
    assert [entry["node"] for entry in node_entries(cluster) if entry is not None] == ["n1", "n2"]
    lists = {name: [each for each in entries if each is not None] for name, entries in VerifyLists(cluster).by_name()}
    assert [(each.code, each.object) for each in cluster.problems()] == [
        (each["code"], each["object"]) for each in lists["problems"]
    ]


async def test_a_turn_has_a_megabyte_however_quickly_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.server.turns._TURN_SECONDS", 3600.0)
    made = [bytes(100_000)] * 100
    batches = [batch async for batch in Turns().taken(iter(made), len)]
    assert sum(map(len, batches)) == len(made)
    assert max(len(b"".join(batch)) for batch in batches) < 1_200_000
    assert len([batch async for batch in Turns().taken(iter(made))]) == 1
