"""On a live cluster, a resource name that a DeviceClass maps is no misspelling (user report on near misses).

It exists because only the API server knows the names of classes. It must not judge other rules of admission. Invariant:
admission follows the classes that exist now.
"""

from extender.kube.discovery import Presence
from tests.admission.reviews import pod, review
from tests.extender import objects
from tests.extender.objects import Json, container, node
from tests.live.harness import Bench, eventually, running

V1, V1BETA2 = "resource.k8s.io/v1", "resource.k8s.io/v1beta2"
MAPPED = "nvidia.com/pgpu"
MERGE = "application/merge-patch+json"


def device_class(name: str, mapped: str | None, version: str = V1) -> Json:
    spec = {} if mapped is None else {"extendedResourceName": mapped}
    return {"apiVersion": version, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


async def is_admitted(bench: Bench, name: str = MAPPED) -> bool:
    written = pod(container("a", {"limits": {name: "1"}, "requests": {name: "1"}}))
    async with bench.extender.session.post("/validate", json=review(written)) as answer:
        return bool((await answer.json())["response"]["allowed"])


async def test_a_name_follows_its_class() -> None:
    async with running(node("n1"), device_class("whole", MAPPED), device_class("plain", None), served=(V1,)) as bench:
        assert await is_admitted(bench)
        path = "/apis/resource.k8s.io/v1/deviceclasses/whole"
        classes = bench.live.cluster.device_classes
        bench.kube.send("PATCH", path, {"spec": {"extendedResourceName": "nvidia.com/other"}}, MERGE)
        await eventually(lambda: not classes.maps(MAPPED))
        assert not await is_admitted(bench)
        bench.kube.send("PATCH", path, {"spec": {"extendedResourceName": MAPPED}}, MERGE)
        await eventually(lambda: classes.maps(MAPPED))
        bench.kube.send("DELETE", path)
        await eventually(lambda: not classes.maps(MAPPED))
        assert not await is_admitted(bench)


async def test_without_the_api_such_a_name_is_a_near_miss() -> None:
    async with running(node("n1"), served=()) as bench:
        assert not await is_admitted(bench)
        assert {each.presence for each in bench.live.optional} == {Presence.ABSENT}
        assert [each.message for each in bench.live.unseen()] == []


async def test_an_older_version_is_read_as_well() -> None:
    async with running(node("n1"), device_class("whole", MAPPED, V1BETA2), served=(V1BETA2,)) as bench:
        assert await is_admitted(bench)


async def test_an_api_that_is_switched_on_later_is_found() -> None:
    async with running(node("n1"), served=()) as bench:
        assert not await is_admitted(bench)
        bench.kube.create(device_class("whole", MAPPED))
        bench.api.serve(V1)
        await eventually(lambda: bench.live.cluster.device_classes.maps(MAPPED), seconds=200)
        assert await is_admitted(bench)


async def test_without_the_permission_pods_are_placed_and_the_message_says_what_is_missing() -> None:
    forbidden = {"fault": "status", "code": 403, "resource": "deviceclasses"}
    async with running(node("n1"), device_class("whole", MAPPED), served=(V1,), faults=(forbidden,)) as bench:
        assert not await is_admitted(bench)
        assert [each.message for each in bench.live.unseen()] == ["may not be listed or watched: none of them counts"]
        assert await bench.scheduler.place(bench.kube.create(objects.pod("p"))) == "n1"
        bench.api.faults.clear()
        await eventually(lambda: bench.live.cluster.device_classes.maps(MAPPED), seconds=400)
        assert await is_admitted(bench)


async def test_a_class_that_cannot_be_read_changes_nothing_but_itself() -> None:
    broken = device_class("broken", None) | {"spec": {"extendedResourceName": 7}}
    async with running(node("n1"), broken, device_class("whole", MAPPED), served=(V1,)) as bench:
        assert await is_admitted(bench)


async def test_a_class_can_be_asked_for_by_its_own_name() -> None:
    async with running(node("n1"), device_class("gpu.nvidia.com", None), served=(V1,)) as bench:
        classes = bench.live.cluster.device_classes
        assert classes.maps("deviceclass.resource.kubernetes.io/gpu.nvidia.com")
        assert not classes.maps("deviceclass.resource.kubernetes.io/other")
        assert not classes.maps("gpu.nvidia.com")
