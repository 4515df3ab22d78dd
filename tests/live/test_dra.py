"""Cards that DRA claims hold on a live cluster: cases DR-01 to DR-22 through list and watch.

It exists because an extender is never asked about pods that use only claims: only the watch shows what they hold. It
must not repeat the rules. Invariant: amounts are those that the API of the extender shows.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from extender.config import ServerSettings, Settings
from extender.kube.discovery import Presence
from extender.live.fetching import fetch_objects
from extender.server.series import extra_series
from tests.apiserver.resources import EVENTS
from tests.extender import dra
from tests.extender.dra import HAMI, claim_status, gpu, mig, resource_claim, resource_slice, result, share
from tests.extender.objects import ALLOCATION, REGISTER, Json, asks, bound, card, container, node, pod, sidecar
from tests.extender.vmis import K, raw_node
from tests.live.harness import Bench, eventually, running

V1 = "resource.k8s.io/v1"
CLAIMS = f"/apis/{V1}/namespaces/default/resourceclaims"
SLICES = f"/apis/{V1}/resourceslices"
MERGE = "application/merge-patch+json"
PCI = "0000:18:00.0"
WHOLE = (10, 24576, 100)
MIGS = (
    mig("gpu-2-mig-1g.5gb-19-0", "GPU-m", "4864Mi", 14),
    mig("gpu-2-mig-3g.20gb-9-4", "GPU-m", "19968Mi", 42),
    mig("gpu-2-mig-7g.40gb-0-0", "GPU-m", "40192Mi", 98),
)


def n1() -> Json:
    """A node with three cards."""
    return node("n1", [card("GPU-a", 0, memory=24576), card("GPU-b", 1, memory=24576), card("GPU-m", 2, memory=40960)])


def cards() -> Json:
    """Return the slice of these cards."""
    return resource_slice(gpu("gpu-0", "GPU-a", pci=PCI), gpu("gpu-1", "GPU-b"), gpu("gpu-2", "GPU-m", memory="40Gi"))


def shared() -> Json:
    """Return the slice of a card that claims can share."""
    whole = {"memory": "24Gi", "cores": "100"}
    devices = dra.device("hami-gpu-0", {"type": "hami-gpu", "uuid": "GPU-a"}, whole)
    return resource_slice(devices, name="n1-shared", driver=HAMI)


async def shown(bench: Bench, uuid: str = "GPU-a") -> Json:
    """Return a card as the API shows it."""
    async with bench.extender.session.get("/api/v1/nodes") as answer:
        nodes: list[Any] = await answer.json()
    (found,) = (each for entry in nodes for each in entry["devices"] if each["uuid"] == uuid)
    return dict(found)


async def used(bench: Bench, uuid: str = "GPU-a") -> tuple[int, int, int]:
    """Return what is held of a card, as the API shows it."""
    held = (await shown(bench, uuid))["requested"]
    return held["slots"], held["memory"], held["cores"]


def dra_cluster(*objects: Json, version: str = V1, faults: Sequence[Json] = ()) -> Any:  # noqa: ANN401 - of `running`
    return running(n1(), *objects, served=(version,), faults=faults)


async def fits(bench: Bench, memory: int, *nodes: str, cores: int | None = None, uuid: str = "GPU-a") -> bool:
    """Whether filter takes a pod that wants this much of one card."""
    only = {"nvidia.com/use-gpuuuid": uuid}
    asked = pod(f"ask-{memory}", [container("a", asks("1", memory, cores))], annotations=only)
    return bool((await bench.scheduler.filter(asked, *(nodes or ("n1",)))).passed)


async def test_dr_01_a_whole_card_is_taken() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0"))) as bench:
        assert await used(bench) == WHOLE
        assert not await fits(bench, 1)
        entry = await shown(bench)
        assert (entry["exclusive"], entry["overcommitted"], entry["pods"]) == (True, False, [])
        assert entry["holders"] == [{"kind": "claim", "name": "default/c", "slots": 10, "memory": 24576, "cores": 100}]


async def test_dr_02_a_claim_counts_once_whoever_uses_it() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0"), reserved_for=3)) as bench:
        assert await used(bench) == WHOLE


async def test_dr_03_shares_leave_the_rest_to_pods() -> None:
    claims = [resource_claim(f"c{number}", share("10Gi", "30", number=str(number))) for number in (1, 2)]
    async with dra_cluster(shared(), *claims, bound("p", "n1", "GPU-a", 3000, cores=10)) as bench:
        assert await used(bench) == (3, 23480, 70)
        assert (await fits(bench, 1096), await fits(bench, 1097)) == (True, False)
        assert {each["kind"] for each in (await shown(bench))["holders"]} == {"pod", "claim"}


@pytest.mark.parametrize(
    "given, expected",
    [
        pytest.param(share("1073741825", "0"), (1, 1025, 0), id="DR-04"),
        pytest.param(share(None, "20"), (1, 24576, 20), id="DR-05"),
        pytest.param(result("gpu-0", consumedCapacity={"memory": "1Gi"}), WHOLE, id="DR-06"),
        pytest.param(result("gpu-0", adminAccess=True), (0, 0, 0), id="DR-10"),
        pytest.param(share("many", "-3"), (1, 24576, 100), id="what cannot be read is all there is"),
        pytest.param(share("1500m", "2500m"), (1, 1, 3), id="fractions are rounded up"),
        pytest.param(result("nic-0", driver="nic.example.com"), (0, 0, 0), id="DR-22"),
    ],
)
async def test_what_one_result_holds(given: Json, expected: tuple[int, int, int]) -> None:
    async with dra_cluster(cards(), shared(), resource_claim("c", given)) as bench:
        assert await used(bench) == expected
        assert bench.live.cluster.problems() == []


async def test_dr_07_parts_of_a_card_in_mig_mode_close_it() -> None:
    slices = resource_slice(gpu("gpu-2", "GPU-m", memory="40Gi"), *MIGS)
    first, second = (resource_claim(name, result(each["name"])) for name, each in zip("ab", MIGS, strict=False))
    async with dra_cluster(slices, first, second) as bench:
        assert await used(bench, "GPU-m") == (2, 24832, 56)
        assert not await fits(bench, 1000, uuid="GPU-m")
        assert not (await shown(bench, "GPU-m"))["overcommitted"]


async def test_dr_08_a_dynamic_mig_device_is_found_by_its_name() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0-mig-1g5gb-19-4"))) as bench:
        assert (await used(bench))[0] == 1
        assert not await fits(bench, 1)


async def test_dr_09_a_vfio_device_is_found_by_its_pci_address() -> None:
    vfio = dra.device("gpu-vfio-0", {"type": "vfio", "uuid": "8bb2ceb2-c757-577e-8ee3-7b2dfc594cc6", dra.PCI: PCI})
    async with dra_cluster(cards()) as bench:
        # The driver withdraws the card when it prepares the device.
        bench.kube.send("PUT", f"{SLICES}/n1-gpus", resource_slice(vfio, gpu("gpu-1", "GPU-b"), generation=2))
        bench.kube.create(resource_claim("c", result("gpu-vfio-0")))
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 1)
        assert await used(bench) == WHOLE
        assert not await fits(bench, 1)


async def test_dr_11_an_allocation_is_held_until_it_is_cleared() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0"), reserved_for=0)) as bench:
        assert await used(bench) == WHOLE
        bench.kube.send("PATCH", f"{CLAIMS}/c/status", {"status": {"allocation": None}}, MERGE)
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 0)
        assert await used(bench) == (0, 0, 0)
        assert await fits(bench, 24576)


async def test_dr_12_and_dr_13_the_share_of_a_pod_is_beside_its_rows_and_outlives_them() -> None:
    inits = [sidecar("side", asks("1", 2000)), container("init", asks("1", 6000))]
    rows = "".join(f"GPU-a,NVIDIA,{memory},0:;" for memory in (2000, 6000, 3000))
    running_pod = pod(
        "p", [container("app", asks("1", 3000))], inits=inits, node="n1", allocation=rows, status={"phase": "Running"}
    )
    owner = {"name": "p", "uid": "uid-p"}
    async with dra_cluster(shared(), running_pod, resource_claim("c", share("8Gi", "0"), owner=owner)) as bench:
        assert (await used(bench))[1] == 8000 + 8192
        over = {"name": "init", "state": {"terminated": {"exitCode": 0}}}
        bench.kube.set_status("p", {"phase": "Running", "initContainerStatuses": [over]})
        await eventually(lambda: bench.live.cluster.cache.pods["uid-p"].state.value == "steady")
        assert (await used(bench))[1] == 5000 + 8192
        bench.kube.set_status("p", {"phase": "Succeeded"})
        await eventually(lambda: "uid-p" not in bench.live.cluster.cache.pods)
        assert (await used(bench))[1] == 8192
        bench.kube.send("DELETE", f"{CLAIMS}/c")
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 0)
        assert (await used(bench))[1] == 0


async def test_dr_15_two_results_are_two_cards() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0"), result("gpu-1"))) as bench:
        assert await used(bench, "GPU-a") == await used(bench, "GPU-b") == WHOLE


async def test_dr_16_a_claim_that_comes_between_filter_and_bind_refuses_the_bind() -> None:
    async with dra_cluster(cards()) as bench:
        only = {"nvidia.com/use-gpuuuid": "GPU-a"}
        asked = bench.kube.create(pod("p", memory=100, annotations=only))
        assert (await bench.scheduler.filter(asked)).passed == ["n1"]
        bench.kube.create(resource_claim("c", result("gpu-0")))
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 1)
        assert (await bench.scheduler.bind(asked, "n1")).startswith("ExclusiveConflict")
        assert bench.kube.node_of("p") is None
        assert await used(bench) == WHOLE


async def test_b_02_and_dr_16_a_claim_that_the_watch_has_not_shown_refuses_the_bind() -> None:
    async with dra_cluster(cards()) as bench:
        asking = bench.kube.create(pod("p"))
        assert (await bench.scheduler.filter(asking, "n1")).passed == ["n1"]
        taken = [resource_claim(f"c{number}", result(f"gpu-{number}")) for number in range(3)]
        async with bench.watch_gap("resourceclaims"):
            for claim in taken:
                bench.kube.create(claim)
                bench.kube.send(
                    "PATCH", f"{CLAIMS}/{claim['metadata']['name']}/status", {"status": claim["status"]}, MERGE
                )
            error = await bench.scheduler.bind(asking, "n1")
        assert error.startswith(("ExclusiveConflict", "InsufficientDevices", "InsufficientSlots"))
        # B-02: the cache said that a card is free, the API server that none is; nothing was written.
        assert bench.kube.node_of("p") is None
        assert not bench.kube.pod("p")["metadata"].get("annotations", {}).get(ALLOCATION)
        assert await used(bench) == WHOLE


async def test_dr_16_binds_that_come_together_share_a_list_and_other_nodes_cost_none() -> None:
    async with dra_cluster(cards(), node("n2")) as bench:
        pods = [bench.kube.create(pod(f"p{number}", memory=10)) for number in range(8)]
        await asyncio.gather(*(bench.scheduler.bind(each, "n1") for each in pods))
        assert 1 <= bench.live.fresh_claims.lists <= 3
        before = bench.live.fresh_claims.lists
        assert await bench.scheduler.bind(bench.kube.create(pod("elsewhere", memory=10)), "n2") == ""
        assert bench.live.fresh_claims.lists == before


async def test_dr_16_a_list_that_fails_refuses_the_bind_and_one_that_is_forbidden_does_not() -> None:
    async with dra_cluster(cards()) as bench:
        asking = bench.kube.create(pod("p", memory=10))
        rule = bench.api.faults.add(fault="status", code=503, resource="resourceclaims", method="GET")
        assert (await bench.scheduler.bind(asking, "n1")).startswith("Unknown: the claims cannot be listed")
        assert bench.kube.node_of("p") is None
        bench.api.faults.remove(rule.id)
        bench.api.faults.add(fault="status", code=403, resource="resourceclaims", method="GET")
        assert await bench.scheduler.bind(asking, "n1") == ""


def served_by_dra(name: str = "p", *, claim: str = "c", mapped: bool = True, **more: Any) -> Json:  # noqa: ANN401
    """A pod whose `nvidia.com/gpu: 1` DRA has served, as kube-scheduler and the kubelet leave it."""
    made = pod(name, [container("main", {"limits": {"nvidia.com/gpu": "1"}})], node="n1", **more)
    made["status"] = {"phase": "Running"}
    if mapped:
        mappings = [{"containerName": "main", "requestName": "r0", "resourceName": "nvidia.com/gpu"}]
        made["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": claim, "requestMappings": mappings}
    return made


def owned(name: str, owner: str, device: str = "gpu-0") -> Json:
    return resource_claim(name, result(device), owner={"name": owner, "uid": f"uid-{owner}"})


async def test_dr_14_what_dra_has_served_as_an_extended_resource_is_one_card_and_blocks_nothing() -> None:
    async with dra_cluster(cards(), served_by_dra(), owned("c", "p")) as bench:
        await eventually(lambda: bench.live.cluster.problems() == [], "the pod is known by its claim")
        assert await used(bench) == WHOLE
        assert await used(bench, "GPU-b") == (0, 0, 0)
        assert await fits(bench, 24576, uuid="GPU-b")
        assert "uid-p" not in bench.live.cluster.cache.pods


async def test_dr_14_a_claim_that_is_seen_after_its_pod_is_found_again() -> None:
    async with dra_cluster(cards(), served_by_dra()) as bench:
        assert [each.code for each in bench.live.cluster.problems()] == ["MissingAllocation"]
        claim = owned("c", "p")
        bench.kube.create(claim)
        bench.kube.send("PATCH", f"{CLAIMS}/c/status", {"status": claim["status"]}, MERGE)
        await eventually(lambda: bench.live.cluster.problems() == [])
        assert await used(bench) == WHOLE


async def test_dr_23_a_label_of_hami_dra_proves_nothing() -> None:
    labelled = served_by_dra(mapped=False)
    labelled["metadata"]["labels"] = {"hami.io/dra": "true"}
    async with dra_cluster(cards(), labelled) as bench:
        assert [each.code for each in bench.live.cluster.problems()] == ["MissingAllocation"]
        assert not await fits(bench, 1)


async def test_dr_24_a_claim_of_another_pod_counts_for_its_owner_once_and_excuses_nobody() -> None:
    async with dra_cluster(cards(), served_by_dra(), owned("c", "other")) as bench:
        assert [each.code for each in bench.live.cluster.problems()] == ["MissingAllocation"]
        assert await used(bench) == WHOLE


@pytest.mark.parametrize(
    "case, units",
    [
        pytest.param("DR-14", 0, id="DR-14"),
        pytest.param("DR-23", 1, id="DR-23"),
        pytest.param("DR-24", 1, id="DR-24"),
    ],
)
async def test_a_raw_key_that_dra_has_served_is_no_raw_use(case: str, units: int) -> None:
    made = served_by_dra(mapped=case != "DR-23")
    made["metadata"]["labels"] = {"hami.io/dra": "true"}
    limits = {"limits": {K: "1"}}
    made["spec"]["containers"][0]["resources"] = limits
    for mapping in made["status"].get("extendedResourceClaimStatus", {}).get("requestMappings", ()):
        mapping["resourceName"] = K
    objects = (n1(), cards(), raw_node("n9"), made, owned("c", "other" if case == "DR-24" else "p"))
    async with running(*objects, served=(V1,), cluster=Settings(raw_keys=(K,))) as bench:
        await eventually(lambda: bench.live.cluster.raw.units.used_on("n1", K) == units)
        assert await used(bench) == WHOLE


async def test_dr_17_a_pool_of_which_a_slice_is_missing_forgets_no_device() -> None:
    halves = [
        resource_slice(gpu("gpu-0", "GPU-a"), name="n1-a", count=2),
        resource_slice(gpu("gpu-1", "GPU-b"), name="n1-b", count=2),
    ]
    async with dra_cluster(*halves) as bench:
        bench.kube.send(
            "PUT", f"{SLICES}/n1-a", resource_slice(gpu("gpu-0", "GPU-a"), name="n1-a", generation=2, count=2)
        )
        bench.kube.send("DELETE", f"{SLICES}/n1-b")
        await eventually(lambda: bench.live.cluster.resource_claims.slice_names() == {"n1-a"})
        # Nobody referred to it meanwhile.
        bench.kube.create(resource_claim("c", result("gpu-1")))
        bench.kube.send("PATCH", f"{CLAIMS}/c/status", {"status": claim_status(result("gpu-1"))}, MERGE)
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 1)
        assert await used(bench, "GPU-b") == WHOLE
        assert bench.live.cluster.problems() == []
        # The other slice of the generation comes, without the device: now it is gone once no claim refers to it.
        bench.kube.create(resource_slice(gpu("gpu-7", "GPU-m"), name="n1-b", generation=2, count=2))
        bench.kube.send("DELETE", f"{CLAIMS}/c")
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 0)
        bench.kube.create(resource_claim("d", result("gpu-1")))
        bench.kube.send("PATCH", f"{CLAIMS}/d/status", {"status": claim_status(result("gpu-1"))}, MERGE)
        await eventually(lambda: [each.code for each in bench.live.cluster.problems()] == ["UnmappedDevice"])


async def test_dr_17_a_device_that_an_incomplete_generation_does_not_name_stays_known() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-1"))) as bench:
        newer = resource_slice(gpu("gpu-0", "GPU-a"), name="newer", generation=5, count=2)
        bench.kube.create(newer)
        bench.kube.send("DELETE", f"{SLICES}/n1-gpus")
        await eventually(lambda: bench.live.cluster.resource_claims.slice_names() == {"newer"})
        assert await used(bench, "GPU-b") == WHOLE
        assert bench.live.cluster.problems() == []


async def test_dr_18_a_device_that_is_no_known_card_blocks_its_node_and_no_other() -> None:
    async with running(n1(), node("n2"), cards(), resource_claim("c", result("gpu-9")), served=(V1,)) as bench:
        asked = await bench.scheduler.filter(pod("p", memory=10), "n1", "n2")
        assert asked.passed == ["n2"]
        assert asked.failed["n1"].startswith("AllocationUnreadable")
        assert {code: count for code, count in bench.live.cluster.problem_counts().items() if count} == {
            "UnmappedDevice": 1
        }
        (problem,) = bench.live.cluster.problems()
        assert str(problem.object) == "resourceclaim default/c"
        assert "gpu.nvidia.com/n1/gpu-9" in problem.message
        # The driver publishes the device: it is a card now.
        bench.kube.send("PUT", f"{SLICES}/n1-gpus", resource_slice(gpu("gpu-9", "GPU-b"), generation=2))
        await eventually(lambda: bench.live.cluster.problems() == [])
        assert await used(bench, "GPU-b") == WHOLE
        assert (await bench.scheduler.filter(pod("p", memory=10), "n1", "n2")).passed == ["n1", "n2"]


async def test_dr_18_unmapped_devices_can_be_ignored() -> None:
    settings = Settings(ignore_unmapped=True)
    claim = resource_claim("c", result("gpu-9"))
    async with running(n1(), cards(), claim, served=(V1,), cluster=settings) as bench:
        assert await fits(bench, 10)
        assert bench.live.cluster.problems() == []


async def test_dr_19_a_pods_rows_and_its_claims_add_up() -> None:
    claim = resource_claim("c", share("2000Mi", "5"), owner={"name": "p", "uid": "uid-p"})
    async with dra_cluster(shared(), bound("p", "n1", "GPU-a", 4000), claim) as bench:
        assert (await used(bench))[:2] == (2, 6000)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_dr_21_every_version_says_the_same(version: str) -> None:
    cards = resource_slice(gpu("gpu-0", "GPU-a"), version=version)
    claim = resource_claim("c", result("gpu-0"), version=version)
    async with dra_cluster(cards, claim, version=f"resource.k8s.io/{version}") as bench:
        assert await used(bench) == WHOLE


async def test_a_card_that_no_node_registers_is_no_concern() -> None:
    async with dra_cluster(resource_slice(gpu("gpu-0", "GPU-z")), resource_claim("c", result("gpu-0"))) as bench:
        assert bench.live.cluster.problems() == []
        assert await fits(bench, 100)


async def test_both_sides_of_an_over_committed_card_are_named() -> None:
    async with dra_cluster(cards(), bound("p", "n1", "GPU-a", 4000)) as bench:
        bench.kube.create(resource_claim("c", result("gpu-0")))
        await eventually(lambda: bench.live.overcommit.reports == 1)
        entry = await shown(bench)
        assert entry["overcommitted"]
        assert [(each["kind"], each["name"]) for each in entry["holders"]] == [
            ("pod", "default/p"),
            ("claim", "default/c"),
        ]
        (problem,) = bench.live.cluster.problems()
        assert "DRA claims: default/c" in problem.message
        assert "pods: default/p" in problem.message
        await eventually(lambda: len(bench.api.store.tables[EVENTS].rows) == 1)
        (row,) = bench.api.store.tables[EVENTS].rows
        assert row.decode()["note"] == "over-committed cards: GPU-a; DRA claims there: default/c"
        bench.kube.send("PATCH", f"{CLAIMS}/c/status", {"status": claim_status(allocated=False, node=None)}, MERGE)
        bench.kube.send("DELETE", f"{CLAIMS}/c")
        await eventually(lambda: bench.live.cluster.problems() == [])


async def test_a_register_that_changes_changes_what_a_whole_card_is() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0"))) as bench:
        smaller = json.dumps([card("GPU-a", 0, memory=16384, slots=4)])
        bench.kube.annotate_node("n1", {REGISTER: smaller})
        await eventually(lambda: bench.live.cluster.cache.card_size("n1", "GPU-b") is None)
        assert await used(bench) == (4, 16384, 100)
        assert bench.live.cluster.problems() == []


@pytest.mark.parametrize("forbidden", ["resourceclaims", "resourceslices"])
async def test_a_permission_that_is_missing_turns_claims_off_and_is_said(forbidden: str) -> None:
    fault = {"fault": "status", "code": 403, "resource": forbidden}
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0")), faults=(fault,)) as bench:
        assert await used(bench) == (0, 0, 0)
        assert await fits(bench, 100)
        assert [each.message for each in bench.live.unseen()] == ["may not be listed or watched: none of them counts"]
        bench.api.faults.clear()
        await eventually(lambda: [each.message for each in bench.live.unseen()] == [], seconds=400)
        assert await used(bench) == WHOLE


async def test_an_api_that_is_switched_on_later_is_counted() -> None:
    async with running(n1()) as bench:
        assert [each.message for each in bench.live.unseen()] == []
        bench.kube.create(cards())
        bench.kube.create(resource_claim("c", result("gpu-0")))
        bench.api.serve(V1)
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 1, seconds=300)
        await eventually(lambda: all(each.presence is Presence.SYNCED for each in bench.live.optional), seconds=300)
        assert await used(bench) == WHOLE


async def test_nothing_is_answered_before_claims_were_listed() -> None:
    slow = {"fault": "status", "code": 503, "times": 3, "resource": "resourceclaims", "verb": "list"}
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0")), faults=(slow,)) as bench:
        # `running` waits for readiness, which waits for the list.
        assert await used(bench) == WHOLE


async def test_a_claim_that_does_not_decode_keeps_what_it_held_and_stops_no_other() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0"))) as bench:
        broken: Json = {"status": {"allocation": {"devices": {"results": "all"}}}}
        bench.kube.send("PATCH", f"{CLAIMS}/c/status", broken, MERGE)
        bench.kube.create(resource_claim("d", result("gpu-1")))
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 2)
        assert await used(bench) == await used(bench, "GPU-b") == WHOLE
        bench.kube.send("DELETE", f"{CLAIMS}/c")
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 1)
        assert await used(bench) == (0, 0, 0)


async def test_a_claim_that_is_deleted_in_a_gap_of_the_watch_is_given_up() -> None:
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0"))) as bench:
        bench.api.faults.add(fault="expire", resource="resourceclaims", times=1)
        bench.kube.send("DELETE", f"{CLAIMS}/c")
        await eventually(lambda: len(bench.live.cluster.resource_claims) == 0)
        assert await used(bench) == (0, 0, 0)


# -- reports -----------------------------------------------------------------------------------------------------------


async def test_claims_are_listed_with_what_they_hold() -> None:
    claims = resource_claim("a", result("gpu-0"), result("gpu-9")), resource_claim("b", share("2Gi", "5"))
    async with dra_cluster(cards(), shared(), *claims) as bench:

        async def listed(query: str = "") -> Any:  # noqa: ANN401 - JSON
            async with bench.extender.session.get(f"/api/v1/claims{query}") as answer:
                return await answer.json()

        first, second = await listed()
        whole = {"node": "n1", "uuid": "GPU-a", "slots": 10, "memory": 24576, "cores": 100, "closed": True}
        unmapped = {"node": "n1", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-9"}
        assert first == {"claim": "default/a", "uid": "uid-a", "cards": [whole], "unmapped": [unmapped]}
        assert (second["claim"], second["cards"][0]["closed"]) == ("default/b", False)
        assert [each["claim"] for each in await listed("?limit=1")] == ["default/a"]
        assert await listed("?node=n2") == await listed("?namespace=other") == []


async def test_what_is_not_seen_is_said_in_readiness_in_verify_and_by_the_command() -> None:
    fault = {"fault": "status", "code": 403, "resource": "resourceclaims"}
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0")), faults=(fault,)) as bench:
        line = "resource resourceclaims.resource.k8s.io may not be listed or watched: none of them counts"
        async with bench.extender.session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        async with bench.extender.session.get("/readyz?verbose") as answer:
            assert (answer.status, await answer.text()) == (200, f"ok\n{line}")
        async with bench.extender.session.get("/api/v1/verify") as answer:
            (problem,) = (await answer.json())["problems"]
            assert (problem["code"], f"{problem['object']} {problem['message']}") == ("UnseenResource", line)
        client = bench.live.client
        objects = await fetch_objects(client, Settings())
        assert [each.object for each in objects.problems] == ["resource resourceclaims.resource.k8s.io"]
        bench.api.faults.clear()
        objects = await fetch_objects(client, Settings())
        assert (objects.problems, list(objects.dra.claims), list(objects.dra.slices)) == ((), ["uid-c"], ["n1-gpus"])


async def test_metrics_show_claims_apart_from_pods() -> None:
    pods = (bound("p", "n1", "GPU-b", 300),)
    async with dra_cluster(cards(), resource_claim("c", result("gpu-0")), *pods) as bench:
        every = ServerSettings(metrics_per_card=True, metrics_per_pod=True)
        text = b"".join(extra_series(bench.live.cluster, every)).decode()
        labels = 'namespace="default",claim="c",node="n1",uuid="GPU-a"'
        assert f"gpu_extender_claim_memory_bytes{{{labels}}} {24576 * 2**20}\n" in text
        assert f"gpu_extender_claim_cores_ratio{{{labels}}} 1.0\n" in text
        by_card = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in text.splitlines() if "GPU-a" in line}
        pods_of, claims_of = (
            next(value for name, value in by_card.items() if name.startswith(f"gpu_extender_card_{kind}{{"))
            for kind in ("pods", "claims")
        )
        assert (pods_of, claims_of) == ("0", "1")
        async with bench.extender.session.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        assert {'gpu_extender_holders{kind="pod"} 1.0', 'gpu_extender_holders{kind="claim"} 1.0'} <= set(lines)
