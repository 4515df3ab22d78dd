"""DeviceTaintRules for cards that pods with annotations hold: made, removed, found again after a crash.

They exist because a rule that stays keeps a free card from DRA for ever, and one that is missing gives a card away
twice. They must not look into the extender. Invariant: rules are read from the API server.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from extender.live.tainting import TaintSettings
from tests.extender.dra import gpu, mig, resource_slice
from tests.extender.objects import Json, bound, card, node, pod
from tests.live.harness import Bench, eventually, live_settings, running

V1 = "resource.k8s.io/v1"
RULES = "/apis/resource.k8s.io/{}/devicetaintrules"


def n1() -> Json:
    return node("n1", [card("GPU-a", 0, memory=24576), card("GPU-b", 1, memory=24576)])


def cards(*more: Json, generation: int = 1) -> Json:
    return resource_slice(gpu("gpu-0", "GPU-a"), gpu("gpu-1", "GPU-b"), *more, generation=generation)


@asynccontextmanager
async def tainting(*objects: Json, version: str = "v1", **how: Any) -> AsyncIterator[Bench]:  # noqa: ANN401
    settings = replace(live_settings(), taints=TaintSettings())
    how = {"served": (f"resource.k8s.io/{version}",)} | how
    async with running(*objects, settings=settings, **how) as bench:
        yield bench


def tainted(bench: Bench, version: str = "v1") -> set[str]:
    rules = bench.kube.send("GET", RULES.format(version))["items"]
    return {each["spec"]["deviceSelector"]["device"] for each in rules}


async def test_a_card_is_tainted_while_a_pod_holds_it() -> None:
    async with tainting(n1(), cards()) as bench:
        await bench.scheduler.place(bench.kube.create(pod("p", memory=100)))
        await eventually(lambda: len(tainted(bench)) == 1, "the card is tainted")
        (rule,) = bench.kube.send("GET", RULES.format("v1"))["items"]
        assert rule["spec"]["taint"] == {"key": "gpu-extender.io/held", "effect": "NoSchedule"}
        selector = rule["spec"]["deviceSelector"]
        assert (selector["driver"], selector["pool"]) == ("gpu.nvidia.com", "n1")
        bench.kube.delete_pod("p")
        await eventually(lambda: tainted(bench) == set(), "the taint is removed")


async def test_every_device_of_the_card_is_tainted_also_one_that_comes_later() -> None:
    async with tainting(n1(), cards(), bound("p", "n1", "GPU-a", 100)) as bench:
        await eventually(lambda: tainted(bench) == {"gpu-0"})
        part = mig("gpu-0-mig-1g.5gb-19-0", "GPU-a", "4864Mi", 14)
        bench.kube.send("PUT", "/apis/resource.k8s.io/v1/resourceslices/n1-gpus", cards(part, generation=2))
        await eventually(lambda: tainted(bench) == {"gpu-0", "gpu-0-mig-1g.5gb-19-0"})
        bench.kube.send("PUT", "/apis/resource.k8s.io/v1/resourceslices/n1-gpus", cards(generation=3))
        await eventually(lambda: tainted(bench) == {"gpu-0"})


async def test_what_a_process_left_behind_is_removed_by_the_next_one_and_rules_of_others_stay() -> None:
    async with tainting(n1(), cards(), bound("p", "n1", "GPU-a", 100), bound("q", "n1", "GPU-b", 100)) as bench:
        await eventually(lambda: tainted(bench) == {"gpu-0", "gpu-1"})
        selector = {"driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-9"}
        body = {"apiVersion": V1, "kind": "DeviceTaintRule", "metadata": {"name": "by-hand"}}
        spec = {"deviceSelector": selector, "taint": {"key": "a", "effect": "NoSchedule"}}
        bench.kube.send("POST", RULES.format("v1"), body | {"spec": spec})
        await bench.extender.kill()
        bench.kube.delete_pod("q")
        await bench.boot()
        await eventually(lambda: tainted(bench) == {"gpu-0", "gpu-9"})


async def test_what_is_refused_is_tried_again() -> None:
    refused = {"fault": "status", "code": 500, "resource": "devicetaintrules", "method": "POST", "times": 2}
    async with tainting(n1(), cards(), bound("p", "n1", "GPU-a", 100), faults=[refused]) as bench:
        await eventually(lambda: tainted(bench) == {"gpu-0"})


async def test_an_older_version_will_do() -> None:
    slices = cards() | {"apiVersion": "resource.k8s.io/v1beta2"}
    async with tainting(n1(), slices, bound("p", "n1", "GPU-a", 100), version="v1beta2") as bench:
        await eventually(lambda: tainted(bench, "v1beta2") == {"gpu-0"})


async def test_it_is_off_by_default() -> None:
    async with running(n1(), cards(), bound("p", "n1", "GPU-a", 100), served=(V1,)) as bench:
        assert bench.live.taints is None
        await bench.caught_up()
        assert bench.api.requests.count(resource="devicetaintrules") == 0
