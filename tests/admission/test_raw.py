"""Budgets of whole devices when pods and VMs are created: C-12, C-13 and C-15 at the webhook.

They exist because the creator of an object decides here, not what the object says of itself. They must not judge shares
of cards. Invariant: every refusal names used, hard and requested.
"""

from dataclasses import replace

import pytest

from accounting.vendor import NVIDIA
from extender.admission.configurations import Target, configurations
from extender.admission.settings import AdmissionSettings
from tests.admission.reviews import OURS, admitting
from tests.extender.objects import Json, asks, container, node, pod
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.vmis import K, raw_node, raw_pod, units_of, vmi

CONTROLLER = "system:serviceaccount:kubevirt:kubevirt-controller"
VMIS: dict[str, str] = {"resource": "virtualmachineinstances", "group": "kubevirt.io"}
HELD = (raw_node(), vmi("held", units=2, namespace="team"), raw_pod("p", 1, node="n1", namespace="team"))
BUDGET = {("team", K): 4}


def scheduled(obj: Json, name: str = OURS) -> Json:
    return obj | {"spec": obj["spec"] | {"schedulerName": name}}


@pytest.mark.parametrize("scheduler", [OURS, "default-scheduler"])
async def test_c_15_a_pod_is_told_used_hard_and_what_it_asks(scheduler: str) -> None:
    cluster = make_raw_cluster(*HELD, budgets=BUDGET)
    async with admitting(cluster=cluster) as webhooks:
        assert (await webhooks.validate(scheduled(raw_pod("q", 1), scheduler))).allowed
        said = await webhooks.validate(scheduled(raw_pod("q", 2), scheduler))
    assert (said.allowed, said.code) == (False, 403)
    assert said.message == f"exceeded budget team: {K}: hard 4, used 3, the pod adds 2"


async def test_a_vm_is_told_before_any_pod_of_it_exists() -> None:
    async with admitting(cluster=make_raw_cluster(*HELD, budgets=BUDGET)) as webhooks:
        assert (await webhooks.validate(vmi("new", units=1, node=None), **VMIS)).allowed
        said = await webhooks.validate(vmi("new", units=2, node=None), **VMIS)
        other = await webhooks.validate(vmi("new", units=9, node=None), namespace="other", **VMIS)
    assert said.message == f"exceeded budget team: {K}: hard 4, used 3, the VM adds 2"
    assert (said.allowed, other.allowed) == (False, True)


async def test_what_virt_controller_creates_is_left_to_filter_and_what_says_so_is_not() -> None:
    cluster = make_raw_cluster(raw_node(), vmi("a", units=4, namespace="team"), budgets=BUDGET)
    async with admitting(cluster=cluster) as webhooks:
        launcher = scheduled(raw_pod("l", 4))
        assert (await webhooks.validate(launcher, user=CONTROLLER)).allowed
        assert not (await webhooks.validate(launcher)).allowed


async def test_a_pod_that_is_listed_already_adds_nothing() -> None:
    machine = vmi("a", ["uid-l"], units=4, namespace="team")
    async with admitting(cluster=make_raw_cluster(raw_node(), machine, budgets=BUDGET)) as webhooks:
        assert (await webhooks.validate(scheduled(raw_pod("l", 4)))).allowed
        assert not (await webhooks.validate(scheduled(raw_pod("m", 4)))).allowed


async def test_before_everything_was_read_neither_is_admitted() -> None:
    async with admitting(cluster=make_raw_cluster(raw_node()), synced=False) as webhooks:
        for said in (
            await webhooks.validate(scheduled(raw_pod("p"))),
            await webhooks.validate(vmi("a"), **VMIS),
        ):
            assert (said.allowed, said.code) == (False, 503)


async def test_a_pod_with_both_is_judged_for_both() -> None:
    both = {"limits": asks(1, 400)["limits"] | units_of(5)["limits"]}
    async with admitting(cluster=make_raw_cluster(node("n1"), raw_node(), budgets=BUDGET)) as webhooks:
        said = await webhooks.validate(scheduled(pod("p", [container("main", both)])))
    assert said.message == f"exceeded budget team: {K}: hard 4, used 0, the pod adds 5"


async def test_a_vm_that_does_not_decode_is_told_why() -> None:
    broken = vmi("a") | {"spec": {"domain": {"devices": {"gpus": "many"}}}}
    async with admitting(cluster=make_raw_cluster()) as webhooks:
        said = await webhooks.validate(broken, **VMIS)
    assert (said.allowed, said.code) == (False, 400)
    assert "request.object" in said.message
    assert "gpus" in said.message


def test_the_api_server_asks_about_vms_and_raw_names_only_where_they_are_counted() -> None:
    without = configurations((NVIDIA,), AdmissionSettings(), Target())
    _, validating = configurations((NVIDIA,), AdmissionSettings(), Target(), ("amd.com/MI300X",))
    names = [each["name"] for each in validating["webhooks"]]
    assert names == [*(each["name"] for each in without[1]["webhooks"]), "machine.gpu-extender.io"]
    machine = validating["webhooks"][-1]
    assert machine["rules"] == [
        {
            "apiGroups": ["kubevirt.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["virtualmachineinstances"],
            "scope": "Namespaced",
        }
    ]
    (condition,) = machine["matchConditions"]
    assert "'amd.com/MI300X'" in condition["expression"]
    assert "'amd.com/MI300X'" in validating["webhooks"][0]["matchConditions"][0]["expression"]


async def test_another_account_may_be_named_for_launchers() -> None:
    settings = replace(AdmissionSettings(), launcher_accounts=frozenset({"vm-operator"}))
    cluster = make_raw_cluster(raw_node(), budgets={("team", K): 0})
    async with admitting(cluster=cluster, settings=settings) as webhooks:
        asking = scheduled(raw_pod("l"))
        assert [(await webhooks.validate(asking, user=user)).allowed for user in ("vm-operator", CONTROLLER)] == [
            True,
            False,
        ]
