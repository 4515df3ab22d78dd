"""What the validating webhook denies, warns of, and admits. Every denial names the field and the value."""

from typing import Any

import pytest

from extender.admission.settings import AdmissionSettings, NearMiss, OtherScheduler, Privileged
from tests.admission.reviews import OURS, SCHEDULER_ACCOUNT, Webhooks, admitting, limits, pod
from tests.extender.objects import asks, container, node, quota, sidecar

DEFAULT = "default-scheduler"
PRIVILEGED = {"privileged": True}


@pytest.mark.parametrize(
    "obj",
    [
        pod(container("a"), scheduler=DEFAULT),
        pod(container("a", {"limits": {"nvidia.com/gpu": "0"}}), scheduler=DEFAULT),
        pod(container("a", {"limits": {"amd.com/gpu": "1", "cpu": "1"}}), scheduler=DEFAULT, nodeName="n1"),
        pod(container("a", securityContext=PRIVILEGED), scheduler=DEFAULT),
        pod(container("a"), scheduler="volcano", annotations={"team": "a", "prometheus.io/scrape": "true"}),
        pod(container("a", {"limits": {"nvidia.com/mig-1g.5gb": "1"}}), scheduler=DEFAULT),
        pod(container("a", {"limits": {"nvidia.com/gpu.shared": "1"}}), scheduler=DEFAULT),
    ],
)
async def test_a_pod_without_a_share_is_let_pass_in_silence(webhooks: Webhooks, obj: dict[str, Any]) -> None:
    answer = await webhooks.validate(obj)
    assert answer.raw.keys() == {"uid", "allowed"}
    assert answer.allowed


@pytest.mark.parametrize("resources", [asks(1, 3000), asks(1, percentage=50), asks(2, 100, 30), asks(1, 100, 100)])
async def test_a_share_is_admitted_without_a_word(webhooks: Webhooks, resources: dict[str, Any]) -> None:
    answer = await webhooks.validate(pod(container("a", resources)))
    assert answer.raw.keys() == {"uid", "allowed"}
    assert answer.allowed


#: Resources, and the message about them; "limits" stands for spec.containers[a].resources.limits.
_INVALID = {
    "bytes": (limits(count="1", memory="16Gi"), "limits[nvidia.com/gpumem]: 16Gi: unit is MiB, write 16384"),
    "fraction of a MiB": (
        limits(count="1", memory="1500m"),
        "limits[nvidia.com/gpumem]: 1500m: must be an integer number of MiB",
    ),
    "beyond int32": (
        limits(count="1", memory="2147483648"),
        "limits[nvidia.com/gpumem]: 2147483648: unit is MiB, write 2048",
    ),
    "negative memory": (limits(count="1", memory="-1"), "limits[nvidia.com/gpumem]: -1: must not be negative"),
    "percentage 101": (
        limits(count="1", percentage="101"),
        "limits[nvidia.com/gpumem-percentage]: 101: must be an integer between 0 and 100",
    ),
    "percentage -1": (
        limits(count="1", percentage="-1"),
        "limits[nvidia.com/gpumem-percentage]: -1: must be an integer between 0 and 100",
    ),
    "negative count": (limits(count="-1"), "limits[nvidia.com/gpu]: -1: must not be negative"),
    "half a count": (limits(count="1.5"), "limits[nvidia.com/gpu]: 1.5: must be an integer"),
    "huge count": (limits(count="8Ei"), "limits[nvidia.com/gpu]: 8Ei: is too large"),
    "no quantity": (limits(count="one"), "limits[nvidia.com/gpu]: one: not a quantity"),
    "negative cores": (limits(count="1", cores="-5"), "limits[nvidia.com/gpucores]: -5: must not be negative"),
    "request is not the limit": (
        {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "2"}},
        "requests[nvidia.com/gpu]: 2: must equal the limit 1",
    ),
}


@pytest.mark.parametrize("resources, said", _INVALID.values(), ids=_INVALID)
@pytest.mark.parametrize("kind", ["init", "sidecar", "app"])
async def test_what_cannot_be_used_is_denied(
    webhooks: Webhooks, resources: dict[str, Any], said: str, kind: str
) -> None:
    make = {"init": container, "sidecar": sidecar, "app": container}[kind]
    asking = make("a", resources)
    obj = pod(asking) if kind == "app" else pod(container("main"), inits=[asking])
    answer = await webhooks.validate(obj)
    where = "spec.containers[a]" if kind == "app" else "spec.initContainers[a]"
    assert (answer.allowed, answer.code) == (False, 422)
    assert answer.message == f"{where}.resources.{said}"


async def test_invalid_annotations_are_denied(webhooks: Webhooks) -> None:
    annotations = {"nvidia.com/numa-bind": "yes", "hami.io/device-scoring-weights": "slot=1"}
    answer = await webhooks.validate(pod(container("a", asks(1, 5)), annotations=annotations))
    assert "metadata.annotations[nvidia.com/numa-bind]: yes: must be true or false" in answer.message
    assert "metadata.annotations[hami.io/device-scoring-weights]: slot=1: must hold" in answer.message


async def test_everything_is_said_at_once_and_of_very_much_the_first(webhooks: Webhooks) -> None:
    bad = [container(f"c{number}", limits(count="-1")) for number in range(10)]
    answer = await webhooks.validate(pod(*bad, nodeName="n1", scheduler=DEFAULT))
    assert answer.message.count("must not be negative") == 8
    assert answer.message.endswith("; and 4 more")


@pytest.mark.parametrize("part", ["memory", "percentage", "cores"])
async def test_a_part_of_no_card_is_ambiguous(webhooks: Webhooks, part: str) -> None:
    answer = await webhooks.validate(pod(container("a", limits(**{part: "7"}))))
    assert answer.code == 422
    assert ": 7: asks for a part of a card but for no card; set nvidia.com/gpu" in answer.message
    answer = await webhooks.validate(pod(container("a", limits(count="0", **{part: "7"}))))
    assert answer.message.startswith("spec.containers[a].resources.limits[nvidia.com/gpu]: 0: asks for no card, but ")


async def test_a_part_of_no_card_in_one_container_beside_a_whole_one(webhooks: Webhooks) -> None:
    answer = await webhooks.validate(pod(container("a", asks(1, 5)), container("b", limits(memory="7"))))
    assert answer.message.startswith("spec.containers[b].resources.limits[nvidia.com/gpumem]: 7: asks for a part")


# -- routing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["", DEFAULT])
async def test_a_share_that_was_added_after_the_mutating_webhook_is_denied(webhooks: Webhooks, scheduler: str) -> None:
    """The mutating webhook sees a pod before other webhooks change it; the validating one sees the result."""
    obj = pod(container("a"), inits=[sidecar("injected", asks(1, 5))], scheduler=scheduler)
    answer = await webhooks.validate(obj)
    assert answer.code == 403
    assert answer.message.startswith(f"spec.schedulerName: {scheduler or '(empty)'}: must be gpu-scheduler")


async def test_another_scheduler_is_respected_with_a_warning(webhooks: Webhooks) -> None:
    app = container("a", asks(1, 5), securityContext=PRIVILEGED)
    answer = await webhooks.admit(pod(app, scheduler="volcano", nodeName="n1"))
    assert answer.allowed
    (warning,) = answer.warnings
    assert warning.startswith("spec.schedulerName: volcano: gives out no shares of cards; only gpu-scheduler does, ")
    assert warning.endswith("so the pod's GPU limits are not enforced here")


async def test_another_scheduler_may_be_denied() -> None:
    async with admitting(settings=AdmissionSettings(other_scheduler=OtherScheduler.DENY)) as webhooks:
        answer = await webhooks.admit(pod(container("a", asks(1, 5)), scheduler="volcano"))
        assert not answer.allowed
        assert answer.message.startswith("spec.schedulerName: volcano: pods that ask for shares of cards must be")
        assert (await webhooks.admit(pod(container("a"), scheduler="volcano"))).allowed


async def test_another_schedulers_pod_keeps_the_quota(webhooks: Webhooks) -> None:
    answer = await webhooks.admit(pod(container("a", asks(1, 24_001)), scheduler="volcano"))
    assert "hard 24000, used 0, the pod adds 24001" in answer.message


# -- privileged containers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["the same", "another", "an init", "a sidecar"])
async def test_a_privileged_container_beside_a_share_is_denied(webhooks: Webhooks, place: str) -> None:
    plain, free = container("a", asks(1, 5)), container("p", securityContext=PRIVILEGED)
    obj = {
        "the same": pod(plain | {"securityContext": PRIVILEGED}),
        "another": pod(plain, free),
        "an init": pod(plain, inits=[free]),
        "a sidecar": pod(plain, inits=[free | {"restartPolicy": "Always"}]),
    }[place]
    answer = await webhooks.validate(obj)
    assert answer.code == 403
    assert answer.message.endswith(
        ".securityContext.privileged: true: sees every card of its node, while container a asks for a share"
    )


async def test_privileged_containers_may_be_allowed_with_whole_cards_or_always() -> None:
    whole, share = container("a", asks(1, None, 100)), container("b", asks(1, 5))
    free = container("p", securityContext=PRIVILEGED)
    async with admitting(settings=AdmissionSettings(privileged=Privileged.EXCLUSIVE)) as webhooks:
        assert (await webhooks.validate(pod(whole, free))).allowed
        assert not (await webhooks.validate(pod(whole, share, free))).allowed
    async with admitting(settings=AdmissionSettings(privileged=Privileged.ALLOW)) as webhooks:
        assert (await webhooks.validate(pod(share, free))).allowed


async def test_a_privileged_ephemeral_container_beside_a_share_is_denied(webhooks: Webhooks) -> None:
    old = pod(container("a", asks(1, 5)))
    debug = {"name": "debug", "image": "i", "securityContext": PRIVILEGED}
    where = "pods/ephemeralcontainers"

    async def update(new: dict[str, Any], old: dict[str, Any] = old) -> Any:  # noqa: ANN401
        return await webhooks.validate(new, old=old, operation="UPDATE", resource=where)

    denied = await update(pod(container("a", asks(1, 5)), ephemeralContainers=[debug]))
    assert denied.message.startswith(
        "spec.ephemeralContainers[debug].securityContext.privileged: true: sees every card"
    )
    assert (
        await update(pod(container("a", asks(1, 5)), ephemeralContainers=[{"name": "debug", "image": "i"}]))
    ).allowed
    assert (await update(pod(container("a"), ephemeralContainers=[debug]))).allowed
    # A container that exists already cannot be undone, and must not keep others out.
    before = pod(container("a", asks(1, 5)), ephemeralContainers=[debug])
    after = pod(container("a", asks(1, 5)), ephemeralContainers=[debug, {"name": "d2", "image": "i"}])
    assert (await update(after, before)).allowed


# -- preset nodes ------------------------------------------------------------------------------------------------------


async def test_a_preset_node_is_denied(webhooks: Webhooks) -> None:
    answer = await webhooks.validate(pod(container("a", asks(1, 5)), nodeName="n1"))
    assert answer.code == 403
    assert answer.message.startswith("spec.nodeName: n1: a pod on a preset node gets no cards")


async def test_a_mirror_pod_is_neither_judged_nor_changed(webhooks: Webhooks) -> None:
    """Its containers already run; a refusal would only hide them. Without cards it blocks its node."""
    marks = {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}
    obj = pod(container("a", asks(1, 90_000)), scheduler=DEFAULT, nodeName="n1", annotations=marks)
    kubelet: dict[str, Any] = {"user": "system:node:n1", "groups": ["system:nodes", "system:authenticated"]}
    assert (await webhooks.validate(obj, **kubelet)).raw.keys() == {"uid", "allowed"}
    assert await webhooks.patch(obj, **kubelet) == []
    # Any user can write the annotation.
    assert not (await webhooks.validate(obj)).allowed


async def test_a_preset_node_passes_from_the_scheduler_and_in_mirror_pods(webhooks: Webhooks) -> None:
    obj = pod(container("a", asks(1, 5)), nodeName="n1", annotations={"kubernetes.io/config.mirror": "x"})
    assert not (await webhooks.validate(obj)).allowed
    assert (await webhooks.validate(obj, user=SCHEDULER_ACCOUNT)).allowed
    assert (await webhooks.validate(obj, user="system:node:n1", groups=["system:nodes"])).allowed
    no_mirror = pod(container("a", asks(1, 5)), nodeName="n1")
    assert not (await webhooks.validate(no_mirror, user="system:node:n1", groups=["system:nodes"])).allowed


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, meant",
    [
        ("nvidia.com/gpumemory", "nvidia.com/gpumem"),
        ("nvidia.com/gpu-mem", "nvidia.com/gpumem"),
        ("nvidia.com/gpumem-mib", "nvidia.com/gpumem"),
        ("nvidia.com/gpumem_percentage", "nvidia.com/gpumem-percentage"),
        ("nvidia.com/gpumem-percent", "nvidia.com/gpumem-percentage"),
        ("nvidia.com/gpucore", "nvidia.com/gpucores"),
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvidia.com/GPU", "nvidia.com/gpu"),
        ("nvida.com/gpu", "nvidia.com/gpu"),
        ("limits.nvidia.com/gpumem", "nvidia.com/gpumem"),
    ],
)
async def test_a_name_that_nearly_is_managed_is_denied(webhooks: Webhooks, name: str, meant: str) -> None:
    resources = {"limits": {name: "5"}, "requests": {name: "5"}}
    answer = await webhooks.validate(pod(container("a", resources), scheduler=DEFAULT))
    field = f"spec.containers[a].resources.limits[{name}]"
    assert answer.message == f"{field}: 5: is not managed here; {meant} is probably meant"
    async with admitting(settings=AdmissionSettings(near_miss=NearMiss.WARN)) as lenient:
        answer = await lenient.validate(pod(container("a", resources), scheduler=DEFAULT))
        assert answer.allowed
        assert answer.warnings == [f"{field}: 5: is not managed here; {meant} is probably meant"]


async def test_a_resource_as_an_annotation_is_denied_or_told(webhooks: Webhooks) -> None:
    annotations = {"nvidia.com/gpumem": "8000"}
    why = (
        "metadata.annotations[nvidia.com/gpumem]: 8000: is not read; ask by the resource nvidia.com/gpumem, "
        "under resources.limits of a container"
    )
    answer = await webhooks.validate(pod(container("a", asks(1, 5)), annotations=annotations))
    assert (answer.allowed, answer.message) == (False, why)
    answer = await webhooks.validate(pod(container("a"), annotations=annotations))
    assert (answer.allowed, answer.warnings) == (True, [why])


@pytest.mark.parametrize("key", ["gpu-memory", "gpumem", "gpu"])
async def test_an_annotation_without_a_domain_is_told(webhooks: Webhooks, key: str) -> None:
    answer = await webhooks.validate(pod(container("a", asks(1, 5)), annotations={key: "8000"}))
    assert answer.allowed
    assert answer.warnings[0].startswith(f"metadata.annotations[{key}]: 8000: is not read; ask by the resource")


async def test_an_annotation_that_nearly_is_read_is_denied(webhooks: Webhooks) -> None:
    answer = await webhooks.validate(pod(container("a", asks(1, 5)), annotations={"nvidia.com/use-gpuuid": "GPU-1"}))
    why = "metadata.annotations[nvidia.com/use-gpuuid]: GPU-1: is not read; nvidia.com/use-gpuuuid is probably meant"
    assert answer.message == why


async def test_annotations_that_are_read_pass(webhooks: Webhooks) -> None:
    annotations = {
        "nvidia.com/use-gpuuuid": "GPU-1",
        "nvidia.com/nouse-gpuuuid": "GPU-1",
        "nvidia.com/use-gputype": "A100",
        "nvidia.com/nouse-gputype": "A10",
        "nvidia.com/numa-bind": "true",
        "nvidia.com/vgpu-mode": "hami-core",
        "hami.io/gpu-scheduler-policy": "binpack",
        "hami.io/node-scheduler-policy": "spread",
        "hami.io/device-scoring-weights": "slot=1,core=1,memory=3",
    }
    answer = await webhooks.validate(pod(container("a", asks(1, 5)), annotations=annotations))
    assert answer.raw.keys() == {"uid", "allowed"}


# -- odd but allowed ---------------------------------------------------------------------------------------------------


async def test_memory_goes_before_a_percentage_and_that_is_told(webhooks: Webhooks) -> None:
    answer = await webhooks.validate(pod(container("a", asks(1, 3000, percentage=50))))
    field = "spec.containers[a].resources.limits[nvidia.com/gpumem-percentage]"
    assert answer.warnings == [f"{field}: 50: is ignored, nvidia.com/gpumem 3000 is used"]


async def test_cores_above_100_are_told(webhooks: Webhooks) -> None:
    answer = await webhooks.validate(pod(container("a", asks(1, 5, 150))))
    assert answer.warnings == [
        "spec.containers[a].resources.limits[nvidia.com/gpucores]: 150: counts as 100, a whole card"
    ]


async def test_what_no_node_has_is_told() -> None:
    async with admitting(node("n1", 2, memory=40_000)) as webhooks:
        answer = await webhooks.validate(pod(container("a", asks(3, 40_001))))
    assert answer.allowed
    assert answer.warnings == [
        "container a: 40001 MiB: the largest card has 40000 MiB",
        "container a: 3 cards: no node has more than 2",
    ]


async def test_overhead_is_told(webhooks: Webhooks) -> None:
    answer = await webhooks.validate(pod(container("a", asks(1, 5)), overhead={"nvidia.com/gpu": "1"}))
    assert answer.warnings == ["spec.overhead[nvidia.com/gpu]: 1: belongs to no container, so no card is given for it"]


async def test_warnings_are_few_and_short(webhooks: Webhooks) -> None:
    """The API server drops everything beyond 4,096 bytes."""
    apps = [container("c" * 60 + str(number), asks(1, 1, 150, percentage=1)) for number in range(20)]
    answer = await webhooks.validate(pod(*apps))
    assert len(answer.warnings) == 12
    assert sum(len(each.encode()) for each in answer.warnings) <= 4096


# -- the cluster's state -----------------------------------------------------------------------------------------------


async def test_before_the_cluster_was_read_a_share_has_to_wait() -> None:
    async with admitting(quota({"limits.nvidia.com/gpumem": "1"}, "team"), synced=False) as webhooks:
        answer = await webhooks.validate(pod(container("a", asks(1, 5))))
        assert (answer.allowed, answer.code) == (False, 503)
        assert "has not read the cluster" in answer.message
        # Reviews that need no state are still answered.
        assert (await webhooks.validate(pod(container("a"), scheduler=DEFAULT))).allowed
        assert (await webhooks.validate(pod(container("a", limits(count="-1"))))).code == 422
        assert await webhooks.patch(pod(container("a", limits(memory="5"))))


async def test_validating_changes_nothing(webhooks: Webhooks) -> None:
    version = webhooks.cluster.version
    for dry_run in (True, False):
        for resources in (asks(1, 5), asks(1, 50_000), limits(count="-1")):
            await webhooks.validate(pod(container("a", resources)), dry_run=dry_run)
    assert webhooks.cluster.version == version
    assert webhooks.cluster.pods() == []
    assert webhooks.cluster.cache.pods == {}


async def test_the_name_of_the_scheduler_is_configured() -> None:
    async with admitting(settings=AdmissionSettings(scheduler_name="cards")) as webhooks:
        assert (await webhooks.admit(pod(container("a", asks(1, 5)), scheduler=DEFAULT))).allowed
        answer = await webhooks.admit(pod(container("a", asks(1, 5)), scheduler=OURS))
        (warning,) = answer.warnings
        assert warning.startswith(f"spec.schedulerName: {OURS}: gives out no shares of cards; only cards does, ")


@pytest.mark.parametrize("part", ["allocatable", "capacity"])
async def test_a_name_that_a_node_advertises_is_no_misspelling(part: str) -> None:
    written = pod(container("a", {"limits": {"nvidia.com/pgpu": "1"}, "requests": {"nvidia.com/pgpu": "1"}}))
    sandboxed = node("n1")
    sandboxed["status"][part] = {"cpu": "8", "nvidia.com/pgpu": "2"}
    async with admitting(sandboxed) as webhooks:
        answer = await webhooks.validate(written)
        assert (answer.allowed, answer.warnings) == (True, [])
    async with admitting(node("n1")) as webhooks:
        answer = await webhooks.validate(written)
        assert not answer.allowed
        assert "nvidia.com/gpu is probably meant" in answer.message
