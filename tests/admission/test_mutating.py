"""What the mutating webhook adds to pods (HAMi v2.10's defaults; user reports A13 and A55)."""

from typing import Any

import pytest

from accounting.vendors import HYGON
from extender.admission.settings import AdmissionSettings, OtherScheduler
from tests.admission.reviews import OURS, Webhooks, admitting, limits, patched, pod, review
from tests.extender.objects import asks, container, sidecar

DEFAULT = "default-scheduler"


def _limits(obj: dict[str, Any]) -> list[dict[str, str]]:
    spec = obj["spec"]
    listed = [*spec.get("initContainers", []), *spec["containers"]]
    return [
        {name.removeprefix("nvidia.com/"): value for name, value in each["resources"].get("limits", {}).items()}
        for each in listed
    ]


@pytest.mark.parametrize(
    "resources",
    [{}, {"limits": {"cpu": "1"}}, {"limits": {"amd.com/gpu": "1"}}, {"limits": {"nvidia.com/gpu": "0"}}, None],
)
async def test_a_pod_that_needs_nothing_gets_no_patch(webhooks: Webhooks, resources: object) -> None:
    answer = await webhooks.ask("/mutate", review(pod(container("a") | {"resources": resources}, scheduler=DEFAULT)))
    assert answer.raw.keys() == {"uid", "allowed"}


@pytest.mark.parametrize("scheduler", [DEFAULT, "", OURS])
async def test_a_pod_that_asks_gets_the_schedulers_name(webhooks: Webhooks, scheduler: str) -> None:
    obj = await webhooks.mutate(pod(container("a", asks(1, 3000)), scheduler=scheduler))
    assert obj["spec"]["schedulerName"] == OURS


async def test_a_pod_without_a_scheduler_name_gets_ours(webhooks: Webhooks) -> None:
    obj = pod(container("a", asks(1, 3000)))
    del obj["spec"]["schedulerName"]
    assert (await webhooks.mutate(obj))["spec"]["schedulerName"] == OURS


@pytest.mark.parametrize("resource", ["count", "memory", "percentage", "cores"])
@pytest.mark.parametrize("kind", ["init", "sidecar", "app"])
async def test_every_resource_in_every_kind_of_container_routes(webhooks: Webhooks, resource: str, kind: str) -> None:
    asking = limits(**{resource: "7"})
    inits = {"init": [container("i", asking)], "sidecar": [sidecar("s", asking)], "app": []}[kind]
    app = container("a", asking if kind == "app" else {})
    obj = await webhooks.mutate(pod(app, inits=inits, scheduler=DEFAULT))
    assert obj["spec"]["schedulerName"] == OURS


#: A container's resources before and after.
_DEFAULTS = {
    "a bare count takes whole cards": ({"gpu": "1"}, {"gpu": "1", "gpucores": "100"}),
    "several bare cards too": ({"gpu": "2"}, {"gpu": "2", "gpucores": "100"}),
    "memory leaves cores unset": ({"gpu": "1", "gpumem": "3000"}, {"gpu": "1", "gpumem": "3000"}),
    "a percentage below 100 too": ({"gpu": "1", "gpumem-percentage": "50"}, {"gpu": "1", "gpumem-percentage": "50"}),
    "percentage 100 takes the card": (
        {"gpu": "1", "gpumem-percentage": "100"},
        {"gpu": "1", "gpumem-percentage": "100", "gpucores": "100"},
    ),
    "cores that are written stand": ({"gpu": "1", "gpucores": "30"}, {"gpu": "1", "gpucores": "30"}),
    "cores 0 is written as well": ({"gpu": "1", "gpucores": "0"}, {"gpu": "1", "gpucores": "0"}),
    "memory alone gets a count": ({"gpumem": "3000"}, {"gpumem": "3000", "gpu": "1"}),
    "cores alone get a count": ({"gpucores": "30"}, {"gpucores": "30", "gpu": "1"}),
    "a percentage alone gets a count": ({"gpumem-percentage": "50"}, {"gpumem-percentage": "50", "gpu": "1"}),
    "percentage 100 alone gets both": (
        {"gpumem-percentage": "100"},
        {"gpumem-percentage": "100", "gpu": "1", "gpucores": "100"},
    ),
    "0 means not asked": (
        {"gpu": "1", "gpumem": "0", "gpumem-percentage": "0"},
        {"gpu": "1", "gpumem": "0", "gpumem-percentage": "0", "gpucores": "100"},
    ),
    "a count of 0 stays": ({"gpu": "0", "gpumem": "3000"}, {"gpu": "0", "gpumem": "3000"}),
    "a canonical quantity is read": ({"gpu": "1", "gpumem": "3k"}, {"gpu": "1", "gpumem": "3k"}),
}


@pytest.mark.parametrize("has, gets", _DEFAULTS.values(), ids=_DEFAULTS)
@pytest.mark.parametrize("place", ["init", "sidecar", "app"])
async def test_defaults(webhooks: Webhooks, has: dict[str, str], gets: dict[str, str], place: str) -> None:
    resources = {"limits": {f"nvidia.com/{name}": value for name, value in has.items()}}
    first = {"init": container("x", resources), "sidecar": sidecar("x", resources), "app": None}[place]
    app = container("a", resources if first is None else {})
    obj = await webhooks.mutate(pod(app, inits=[container("plain")] + ([first] if first else []), scheduler=DEFAULT))
    assert _limits(obj)[1] == gets
    assert _limits(obj)[0] == {}


async def test_each_container_gets_its_own_defaults(webhooks: Webhooks) -> None:
    inits = [container("i", limits(memory="20")), sidecar("s", limits(count="1"))]
    obj = await webhooks.mutate(pod(container("a"), container("b", limits(cores="5")), inits=inits))
    assert _limits(obj) == [
        {"gpumem": "20", "gpu": "1"},
        {"gpu": "1", "gpucores": "100"},
        {},
        {"gpucores": "5", "gpu": "1"},
    ]


async def test_a_count_under_requests_counts(webhooks: Webhooks) -> None:
    resources = {"requests": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "5"}}
    assert await webhooks.patch(pod(container("a", resources))) == []


async def test_limits_are_made_where_there_are_none(webhooks: Webhooks) -> None:
    for resources in (
        {"requests": {"nvidia.com/gpumem": "5"}},
        {"limits": None, "requests": {"nvidia.com/gpumem": "5"}},
    ):
        obj = await webhooks.mutate(pod(container("a", resources)))
        assert _limits(obj) == [{"gpu": "1"}]


async def test_a_pod_that_was_mutated_needs_nothing_more(webhooks: Webhooks) -> None:
    """The API server asks again when another webhook has changed the pod after ours (reinvocationPolicy IfNeeded)."""
    inits = [sidecar("s", limits(percentage="100")), container("i", limits(memory="20"))]
    variable = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/priority": "1"}}
    obj = pod(container("a", limits(count="2")), container("b", variable), inits=inits, scheduler=DEFAULT)
    once = await webhooks.mutate(obj)
    assert once != obj
    assert await webhooks.patch(once) == []


async def test_what_another_webhook_adds_later_is_completed_when_asked_again(webhooks: Webhooks) -> None:
    once = await webhooks.mutate(pod(container("a", limits(memory="20")), scheduler=DEFAULT))
    once["spec"]["initContainers"] = [sidecar("injected", limits(memory="10"))]
    twice = await webhooks.mutate(once)
    assert _limits(twice) == [{"gpumem": "10", "gpu": "1"}, {"gpumem": "20", "gpu": "1"}]


async def test_another_schedulers_pod_is_left_alone(webhooks: Webhooks) -> None:
    assert await webhooks.patch(pod(container("a", limits(count="1")), scheduler="volcano")) == []


async def test_another_schedulers_pod_is_taken_over_by_configuration() -> None:
    async with admitting(settings=AdmissionSettings(other_scheduler=OtherScheduler.REPLACE)) as webhooks:
        obj = await webhooks.mutate(pod(container("a", limits(count="1")), scheduler="volcano"))
        assert obj["spec"]["schedulerName"] == OURS


async def test_the_default_scheduler_may_be_respected_too() -> None:
    async with admitting(settings=AdmissionSettings(replace_default_scheduler=False)) as webhooks:
        assert await webhooks.patch(pod(container("a", limits(count="1")), scheduler=DEFAULT)) == []


async def test_the_default_count_and_its_absence() -> None:
    async with admitting(settings=AdmissionSettings(default_count=2)) as webhooks:
        obj = await webhooks.mutate(pod(container("a", limits(memory="5"))))
        assert _limits(obj) == [{"gpumem": "5", "gpu": "2"}]
    async with admitting(settings=AdmissionSettings(default_count=0)) as webhooks:
        assert await webhooks.patch(pod(container("a", limits(memory="5")))) == []


async def test_a_runtime_class_is_set_where_none_is_named() -> None:
    async with admitting(settings=AdmissionSettings(runtime_class="nvidia")) as webhooks:
        obj = await webhooks.mutate(pod(container("a", limits(memory="5"))))
        assert obj["spec"]["runtimeClassName"] == "nvidia"
        assert await webhooks.patch(obj) == []
        named = pod(container("a", asks(1, 5)), runtimeClassName="kata")
        assert await webhooks.patch(named) == []
        assert await webhooks.patch(pod(container("a"))) == []


async def test_the_priority_becomes_a_variable(webhooks: Webhooks) -> None:
    resources = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "5", "nvidia.com/priority": "1"}}
    variable = {"name": "CUDA_TASK_PRIORITY", "value": "1"}
    other = {"name": "X", "value": "y"}
    for env, expected in (
        (None, [variable]),
        ([other], [other, variable]),
        ([variable | {"value": "0"}], [variable | {"value": "0"}]),
    ):
        app = container("a", resources) | ({} if env is None else {"env": env})
        obj = await webhooks.mutate(pod(app))
        assert obj["spec"]["containers"][0]["env"] == expected


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT"])
async def test_only_creation_is_mutated(webhooks: Webhooks, operation: str) -> None:
    asking = pod(container("a", limits(memory="5")), scheduler=DEFAULT)
    assert await webhooks.patch(asking, operation=operation) == []
    assert await webhooks.patch(asking, resource="pods/ephemeralcontainers") == []


async def test_a_value_that_is_no_quantity_is_left_to_the_validating_webhook(webhooks: Webhooks) -> None:
    obj = pod(container("a", limits(count="1", memory="much")), scheduler=DEFAULT)
    routed = patched(obj, await webhooks.patch(obj))
    assert routed["spec"]["schedulerName"] == OURS
    verdict = await webhooks.validate(routed)
    assert not verdict.allowed
    assert "spec.containers[a].resources.limits[nvidia.com/gpumem]: much: not a quantity" in verdict.message


async def test_a_dry_run_gets_the_same_patch_and_leaves_nothing_behind(webhooks: Webhooks) -> None:
    obj = pod(container("a", limits(memory="5")), scheduler=DEFAULT)
    version = webhooks.cluster.version
    assert await webhooks.patch(obj, dry_run=True) == await webhooks.patch(obj)
    assert webhooks.cluster.version == version
    assert webhooks.cluster.pods() == []


async def test_other_vendors_cards_are_routed_and_counted_but_not_taken_whole_by_themselves() -> None:
    """HAMi's webhook makes a bare count exclusive only for NVIDIA; Hygon's cores default to 100 anyway."""
    async with admitting(further=(HYGON,)) as webhooks:
        resources = {"limits": {"hygon.com/dcumem": "2048"}}
        obj = await webhooks.mutate(pod(container("a", resources), scheduler=DEFAULT))
        assert obj["spec"]["schedulerName"] == OURS
        assert obj["spec"]["containers"][0]["resources"]["limits"] == {
            "hygon.com/dcumem": "2048",
            "hygon.com/dcunum": "1",
        }
        assert (await webhooks.validate(obj)).allowed
        bare = pod(container("a", {"limits": {"hygon.com/dcunum": "1"}}))
        assert await webhooks.patch(bare) == []
        forged = pod(container("a"), annotations={"hami.io/dcu-devices-allocated": "DCU-0,DCU,1,1:;"})
        assert not (await webhooks.validate(forged)).allowed
    async with admitting() as webhooks:
        assert await webhooks.patch(pod(container("a", resources), scheduler=DEFAULT)) == []
