"""Users' reports (A.2, A.3, A.7 and A.8) that admission decides, each by name."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from accounting.quota.objects import Quota
from accounting.vendor import NVIDIA
from extender.admission.settings import AdmissionSettings, Privileged
from extender.config import Settings
from extender.convert.node import convert_quota
from extender.wire.admission_v1 import decode_review
from extender.wire.core_v1 import ResourceQuota
from tests.admission.reviews import OURS, PLUGIN_ACCOUNT, SCHEDULER_ACCOUNT, admitting, limits, patched, pod, review
from tests.extender.objects import ALLOCATION, asks, bound, container, node, quota, sidecar

DEFAULT = "default-scheduler"
MEMORY, CORES = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores"


def _read_quota(hard: dict[str, str]) -> Quota:
    wire = msgspec.convert(quota(hard, "team"), ResourceQuota)
    return convert_quota(wire, Settings())


def _share(*apps: object, inits: list[Any] | None = None) -> dict[str, Any]:
    """A pod whose apps ask for this much memory; its inits are (kind, memory)."""
    makes = {"init": container, "sidecar": sidecar}
    before = [makes[kind](f"{kind}{place}", asks(1, mib)) for place, (kind, mib) in enumerate(inits or [])]
    listed = [container(f"app{place}", asks(1, mib) if mib else {}) for place, mib in enumerate(apps)]
    return pod(*listed, inits=before, scheduler=DEFAULT)


async def test_seed_example_a_quota_of_24_gi_denies_init_30_app_4() -> None:
    """A03."""
    async with admitting(quota({MEMORY: str(24 * 1024)}, "team")) as webhooks:
        denied = await webhooks.admit(_share(4 * 1024, inits=[("init", 30 * 1024)]))
        assert denied.message == ("exceeded quota team/gpus: nvidia.com/gpumem: hard 24576, used 0, the pod adds 30720")
        assert (await webhooks.admit(_share(4 * 1024, inits=[("init", 24 * 1024)]))).allowed


async def test_seed_example_sidecar_10_and_app_10_are_charged_20() -> None:
    """A05."""
    for limit, allowed in ((20, True), (19, False)):
        async with admitting(quota({MEMORY: str(limit * 1024)}, "team")) as webhooks:
            answer = await webhooks.admit(_share(10 * 1024, inits=[("sidecar", 10 * 1024)]))
            assert answer.allowed == allowed
            assert allowed or "the pod adds 20480" in answer.message


@pytest.mark.parametrize(
    "inits, app, peak",
    [
        ([("init", 10), ("init", 10), ("init", 10)], 10, 10),
        ([("sidecar", 2), ("init", 20)], 10, 22),
        ([("init", 20), ("sidecar", 2)], 10, 20),
        ([("sidecar", 100), ("init", 200)], 100, 300),
        ([("init", 200), ("sidecar", 100)], 100, 200),
        ([("sidecar", 2), ("init", 5), ("sidecar", 3), ("init", 7)], 4, 12),
        ([("sidecar", 2)], 3, 5),
    ],
    ids=["A01", "A06", "A09 init first", "A08", "A08 reversed", "A.0 interleaved", "A15"],
)
async def test_a_pod_is_charged_its_order_aware_peak(inits: list[Any], app: int, peak: int) -> None:
    for limit in (peak, peak - 1):
        async with admitting(quota({MEMORY: str(limit)}, "team")) as webhooks:
            assert (await webhooks.admit(_share(app, inits=inits))).allowed == (limit == peak)


async def test_a10_an_init_without_gpu_does_not_turn_an_app_into_an_init() -> None:
    """Two apps of 40 percent of 40,000 are 32,000, with or without a plain init before them."""
    apps = [container(name, asks(1, percentage=40)) for name in "ab"]
    async with admitting(node("n1", memory=40_000), quota({MEMORY: "24000"}, "team")) as webhooks:
        for inits in ([], [container("plain")]):
            answer = await webhooks.admit(pod(*apps, inits=inits))
            assert not answer.allowed
            assert "the pod adds at least 32000" in answer.message


async def test_a13_a_gpu_only_in_an_init_is_routed_and_charged() -> None:
    obj = _share(0, inits=[("init", 8000)])
    async with admitting(quota({MEMORY: "4000"}, "team")) as webhooks:
        assert (await webhooks.mutate(obj))["spec"]["schedulerName"] == OURS
        assert "used 0, the pod adds 8000" in (await webhooks.admit(obj)).message
    async with admitting(quota({MEMORY: "8000"}, "team")) as webhooks:
        assert (await webhooks.admit(obj)).allowed


async def test_a14_a_sidecar_counts_beside_the_app() -> None:
    for hard in ({"limits.nvidia.com/gpu": "1"}, {MEMORY: "7"}):
        async with admitting(quota(hard, "team")) as webhooks:
            assert not (await webhooks.admit(_share(4, inits=[("sidecar", 4)]))).allowed


@pytest.mark.parametrize(
    "annotations",
    [
        {"hami.io/bind-phase": "allocating"},
        {"hami.io/bind-time": "1700000000"},
        {"hami.io/vgpu-node": "n1"},
        {"hami.io/vgpu-time": "1"},
        {"hami.io/vgpu-devices-to-allocate": "GPU-x,NVIDIA,20000,100:;"},
        {ALLOCATION: "GPU-x,NVIDIA,20000,100:;"},
        {"hami.io/vgpu-mig-allocations": "[]"},
        {ALLOCATION: ""},
    ],
    ids=["bind-phase", "bind-time", "vgpu-node", "vgpu-time", "to-allocate", "allocated", "mig", "empty"],
)
@pytest.mark.parametrize("scheduler", [DEFAULT, OURS, "volcano"])
async def test_a37_the_schedulers_annotations_are_denied_on_creation(
    annotations: dict[str, str], scheduler: str
) -> None:
    (key,) = annotations
    async with admitting() as webhooks:
        for app in (container("a"), container("a", asks(1, 5))):
            obj = pod(app, scheduler=scheduler, annotations=annotations)
            answer = await webhooks.admit(obj)
            assert answer.code == 403
            assert f"metadata.annotations[{key}]: " in answer.message
            assert "belongs to the scheduler; leave it out" in answer.message
            for account in (SCHEDULER_ACCOUNT, PLUGIN_ACCOUNT):
                assert (await webhooks.admit(pod(app, annotations=annotations), user=account)).allowed


async def test_a37_the_schedulers_label_is_denied_as_well() -> None:
    async with admitting() as webhooks:
        answer = await webhooks.admit(pod(container("a"), labels={"hami.io/vgpu-node": "n1"}))
        assert answer.message == "metadata.labels[hami.io/vgpu-node]: n1: belongs to the scheduler; leave it out"


@pytest.mark.parametrize("resource", ["pods", "pods/status"])
@pytest.mark.parametrize(
    "before, after",
    [
        ({}, {"hami.io/vgpu-node": "n1"}),
        ({ALLOCATION: "a"}, {ALLOCATION: "b"}),
        ({ALLOCATION: "a"}, {}),
        ({}, {ALLOCATION: ""}),
    ],
    ids=["set", "changed", "removed", "blanked"],
)
async def test_a37_their_change_is_denied_on_update(
    resource: str, before: dict[str, str], after: dict[str, str]
) -> None:
    old = pod(container("a", asks(1, 5)), annotations=before | {"other": "1"})
    new = pod(container("a", asks(1, 5)), annotations=after | {"other": "2"})
    async with admitting() as webhooks:
        answer = await webhooks.validate(new, old=old, operation="UPDATE", resource=resource)
        assert answer.code == 403
        assert "belongs to the scheduler; it must stay " in answer.message
        for account in (SCHEDULER_ACCOUNT, PLUGIN_ACCOUNT):
            given = {"old": old, "operation": "UPDATE", "resource": resource, "user": account}
            assert (await webhooks.validate(new, **given)).allowed
        same = pod(container("a", asks(1, 5)), annotations=before | {"other": "3"})
        assert (await webhooks.validate(same, old=old, operation="UPDATE", resource=resource)).allowed


@pytest.mark.parametrize("resource", ["pods/binding", "bindings"])
async def test_a37_a_binding_with_annotations_of_the_scheduler_is_denied(resource: str) -> None:
    """The API server merges a Binding's annotations and labels into the pod."""
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n1"}}
    forged = binding | {"metadata": {"name": "p", "annotations": {ALLOCATION: "GPU-x,NVIDIA,1,1:;"}}}
    async with admitting() as webhooks:
        assert (await webhooks.validate(binding, resource=resource)).allowed
        answer = await webhooks.validate(forged, resource=resource)
        assert answer.message.startswith(f"metadata.annotations[{ALLOCATION}]: GPU-x,NVIDIA,1,1:;: belongs")
        assert (await webhooks.validate(forged, resource=resource, user=SCHEDULER_ACCOUNT)).allowed


async def test_a38_gpumem_as_an_annotation_or_misspelt_is_denied() -> None:
    async with admitting() as webhooks:
        answer = await webhooks.admit(pod(container("a", asks(1, 5)), annotations={"nvidia.com/gpumem": "8000"}))
        assert answer.message.startswith("metadata.annotations[nvidia.com/gpumem]: 8000: is not read; ask by")
        answer = await webhooks.admit(pod(container("a", {"limits": {"nvidia.com/gpumemory": "8000Mi"}})))
        assert "nvidia.com/gpumem is probably meant" in answer.message


async def test_a40_usage_is_multiplied_by_the_count() -> None:
    obj = pod(container("a", asks(2, 2048, 20)))
    for hard, allowed in (({MEMORY: "4096", CORES: "40"}, True), ({MEMORY: "4095"}, False), ({CORES: "39"}, False)):
        async with admitting(quota(hard, "team")) as webhooks:
            assert (await webhooks.admit(obj)).allowed == allowed


async def test_a41_the_apps_of_a_pod_are_checked_together() -> None:
    async with admitting(quota({MEMORY: "2048"}, "team")) as webhooks:
        assert "hard 2048, used 0, the pod adds 3000" in (await webhooks.admit(_share(1500, 1500))).message


async def test_a43_a_quota_edit_leaves_no_gap() -> None:
    """Admissions that run while a quota is edited again and again see one limit or the other."""
    async with admitting(quota({MEMORY: "1000"}, "team")) as webhooks:
        low, high = (_read_quota({MEMORY: limit}) for limit in ("1000", "2000"))

        async def edit() -> None:
            for number in range(400):
                webhooks.cluster.put_quota(high if number % 2 else low)
                await asyncio.sleep(0)

        editing = asyncio.create_task(edit())
        while not editing.done():
            assert not (await webhooks.admit(_share(2001))).allowed
        await editing


async def test_a44_a_key_that_is_taken_out_limits_no_more_and_a_quota_that_is_gone_neither() -> None:
    obj = pod(container("a", asks(1, 8000, 90)))
    async with admitting(quota({MEMORY: "8000", CORES: "80"}, "team")) as webhooks:
        assert not (await webhooks.admit(obj)).allowed
        webhooks.cluster.put_quota(_read_quota({MEMORY: "8000"}))
        assert (await webhooks.admit(obj)).allowed
        webhooks.cluster.remove_quota("team", "gpus")
        assert (await webhooks.admit(pod(container("a", asks(1, 8001, 90))))).allowed


@pytest.mark.parametrize("prefix", ["limits.", "requests."])
async def test_a44_both_prefixes_limit(prefix: str) -> None:
    async with admitting(quota({f"{prefix}nvidia.com/gpumem": "8000"}, "team")) as webhooks:
        assert not (await webhooks.admit(_share(8001))).allowed


async def test_a49_the_unit_of_memory_is_applied_once() -> None:
    vendor = replace(NVIDIA, memory_factor=1024)
    for units, allowed in ((8, True), (9, False)):
        async with admitting(quota({MEMORY: "8"}, "team"), vendor=vendor) as webhooks:
            assert (await webhooks.admit(_share(units))).allowed == allowed


async def test_a53_a_quota_that_comes_after_its_pods_counts_them_at_once() -> None:
    holders = [bound(f"old{n}", "n1", "GPU-n1-0", 2000, namespace="team") for n in range(3)]
    async with admitting(node("n1", memory=40_000), *holders, quota({MEMORY: "10000"}, "team")) as webhooks:
        assert "hard 10000, used 6000, the pod adds 5000" in (await webhooks.admit(_share(5000))).message
        assert (await webhooks.admit(_share(4000))).allowed


async def test_a54_a_percentage_is_checked_as_far_as_it_is_certain() -> None:
    """50 percent are 8,192 at best, on the card of 16,384; on the card of 49,152 they would be 24,576."""
    cards = [node("small", memory=16_384), node("large", memory=49_152)]
    for limit, allowed in (("20000", True), ("8192", True), ("8191", False)):
        async with admitting(*cards, quota({MEMORY: limit}, "team")) as webhooks:
            answer = await webhooks.admit(pod(container("a", asks(1, percentage=50))))
            assert answer.allowed == allowed
            assert allowed or "the pod adds at least 8192" in answer.message


async def test_a54_without_any_card_only_a_quota_that_is_used_up_denies_a_percentage() -> None:
    for limit, allowed in (("1", True), ("0", False)):
        async with admitting(quota({MEMORY: limit}, "team")) as webhooks:
            assert (await webhooks.admit(pod(container("a", asks(1, percentage=50))))).allowed == allowed


async def test_a54_every_limit_that_is_passed_is_told_and_what_is_certain_of_it() -> None:
    async with admitting(node("n1", memory=16_384), quota({MEMORY: "12000", CORES: "50"}, "team")) as webhooks:
        answer = await webhooks.admit(pod(container("a", limits(count="1")), scheduler=DEFAULT))
        assert answer.message == (
            "exceeded quota team/gpus: nvidia.com/gpucores: hard 50, used 0, the pod adds 100; "
            "exceeded quota team/gpus: nvidia.com/gpumem: hard 12000, used 0, the pod adds at least 16384"
        )
    async with admitting(node("n1", memory=10), quota({MEMORY: "0"}, "team")) as webhooks:
        assert not (await webhooks.admit(pod(container("a", asks(1, percentage=1))))).allowed


@pytest.mark.parametrize("part", ["memory", "percentage", "cores"])
async def test_a55_a_missing_count_is_filled_in(part: str) -> None:
    async with admitting(quota({"limits.nvidia.com/gpu": "0"}, "team")) as webhooks:
        answer = await webhooks.admit(pod(container("a", limits(**{part: "10"})), scheduler=DEFAULT))
        assert "nvidia.com/gpu: hard 0, used 0, the pod adds 1" in answer.message


async def test_a55_parts_under_requests_alone_are_not_lost() -> None:
    """The API server itself refuses such a pod afterwards: extended resources need a limit."""
    async with admitting(quota({MEMORY: "5"}, "team")) as webhooks:
        obj = await webhooks.mutate(pod(container("a", {"requests": {"nvidia.com/gpumem": "10"}}), scheduler=DEFAULT))
        assert obj["spec"]["schedulerName"] == OURS
        assert obj["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
        assert "the pod adds 10" in (await webhooks.validate(obj)).message


@pytest.mark.parametrize("count", ["-1", "1.5", "0"])
async def test_a55_an_invalid_count_is_denied(count: str) -> None:
    async with admitting() as webhooks:
        obj = pod(container("a", limits(count=count, memory="8000")), scheduler=DEFAULT)
        patch = (await webhooks.ask("/mutate", review(obj))).patch
        # A resource key is never empty, and no value replaces one that a person wrote.
        assert [each["path"] for each in patch] == ["/spec/schedulerName"]
        answer = await webhooks.validate(patched(obj, patch))
        assert answer.message.startswith(f"spec.containers[a].resources.limits[nvidia.com/gpu]: {count}: ")


async def test_a94_a95_a96_percentages_and_memory_out_of_range() -> None:
    for value in ("101", "150", str(2**32 + 50), "-1"):
        async with admitting() as webhooks:
            answer = await webhooks.admit(pod(container("a", limits(count="1", percentage=value))))
            assert f"[nvidia.com/gpumem-percentage]: {value}: must be an integer between 0 and 100" in answer.message
    async with admitting() as webhooks:
        assert (await webhooks.admit(pod(container("a", limits(count="1", percentage="0"))))).allowed
        answer = await webhooks.admit(pod(container("a", limits(count="1", memory="16Gi"))))
        assert "16Gi: unit is MiB, write 16384" in answer.message
        answer = await webhooks.admit(pod(container("a", limits(count="1", memory="NaN"))))
        assert "NaN: not a quantity" in answer.message


async def test_a107_a_privileged_container_gets_a_plain_message() -> None:
    obj = pod(container("a", asks(1, 5), securityContext={"privileged": True}), scheduler=DEFAULT)
    async with admitting() as webhooks:
        answer = await webhooks.admit(obj)
        assert answer.message == (
            "spec.containers[a].securityContext.privileged: true: sees every card of its node, "
            "while container a asks for a share"
        )
    async with admitting(settings=AdmissionSettings(privileged=Privileged.ALLOW)) as webhooks:
        assert (await webhooks.mutate(obj))["spec"]["schedulerName"] == OURS
        assert (await webhooks.admit(obj)).allowed


async def test_a109_a_preset_node_is_denied() -> None:
    async with admitting() as webhooks:
        answer = await webhooks.admit(pod(container("a", asks(1, 5)), nodeName="n1"))
        assert answer.message.startswith("spec.nodeName: n1: ")


async def test_a111_pods_that_ask_and_are_not_ours_are_counted() -> None:
    async with admitting() as webhooks:
        for _ in range(3):
            await webhooks.admit(pod(container("a", asks(1, 5)), scheduler="volcano"))
        async with webhooks.session.get("/metrics") as response:
            text = await response.text()
    labels = 'decision="allowed",dry_run="false",webhook="validate",why="OtherScheduler"'
    assert f"gpu_extender_admission_decisions_total{{{labels}}} 3.0" in text


async def test_a112_answers_come_from_memory() -> None:
    """Judging is one synchronous call, in which nothing could wait for the API server."""
    async with admitting(quota({MEMORY: "8"}, "team")) as webhooks:
        request = decode_review(json.dumps(review(pod(container("a", asks(1, 9))))).encode())
        assert not webhooks.admission.validate(request).allowed
        assert webhooks.admission.mutate(request).allowed
