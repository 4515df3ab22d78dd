"""manifests/ allow the extender exactly what it asks of the API server: nothing more, and nothing less.

It exists because an intruder can use a rule that the program does not need. It must not know the program's modules: the
requests are those that the API server got. Invariant: every rule is needed by a request of this story, and every
request of it is allowed by a rule.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from accounting.vendor import NVIDIA
from accounting.vendors import VENDORS
from extender.config import HoldSource, Settings
from extender.kube.events import EventRecorder, EventSettings, PodRef
from extender.live.leading.lease import LeaseSettings
from extender.live.tainting import TaintSettings
from extender.live.watching.handshakes import HandshakeKeeper
from tests.apiserver.beside import Beside
from tests.apiserver.server import ApiServer
from tests.extender.dra import gpu, resource_slice
from tests.extender.objects import bound, node, pod, quota
from tests.extender.vmis import K, raw_node
from tests.live.harness import Bench, Extender, eventually, live_settings, running
from tests.live.harness_evicting import HIGH, evicting, holder, is_bound, notes, queue, with_priority
from tests.live.harness_waking import refuse, woken
from tests.live.test_hold_sets import hold, said

MANIFESTS = Path(__file__).parents[2] / "manifests"
EXTENDER, SCHEDULER = "gpu-extender", "gpu-scheduler"


class Allowed(NamedTuple):
    """A verb on a resource, and the name of the objects; "": any."""

    group: str
    resource: str
    verb: str
    name: str = ""


def documents(*paths: str) -> list[dict[str, Any]]:
    return [each for path in paths for each in yaml.safe_load_all((MANIFESTS / path).read_text()) if each]


def rules_of(account: str, *paths: str) -> set[Allowed]:
    """Return what the bindings in these files give an account through their roles."""
    found = documents(*paths)
    roles = {(each["kind"], each["metadata"]["name"]): each["rules"] for each in found if each["kind"].endswith("Role")}
    names = [
        (each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in found
        if each["kind"].endswith("RoleBinding") and account in [subject["name"] for subject in each["subjects"]]
    ]
    return {
        Allowed(group, resource, verb, name)
        for role in names
        for rule in roles.get(role, ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def requested(api: ApiServer) -> set[Allowed]:
    """Return what the API server was asked for."""
    return {_allowed(seen.path, seen.target, seen.verb) for seen in api.requests.recent}


def _allowed(path: str, target: str, verb: str) -> Allowed:
    parts = path.split("?", maxsplit=1)[0].strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    # The manifests name each Lease.
    is_named = target == "leases" and verb != "create"
    return Allowed(group, target, verb, parts[-1] if is_named else "")


async def everything(bench: Bench) -> None:
    """Do everything that makes the extender send a request to the API server, each once."""
    kube, live = bench.kube, bench.live
    await bench.scheduler.place(kube.create(pod("placed")))
    # A conflict on the node and one on the pod: each is read again.
    for resource in ("nodes", "pods/binding"):
        bench.api.faults.add(
            fault="status", code=409, resource=resource, method="PATCH" if resource == "nodes" else "POST", times=1
        )
        kube.annotate_node("n1", {"hami.io/mutex.lock": None})
        await bench.scheduler.bind(kube.create(pod(f"conflict-{resource[:4]}")), "n1")
    await refuse(bench, pod("waiting", memory=1000))
    for name in ("holder", "placed", "conflict-node", "conflict-pods"):
        kube.delete_pod(name)
    await eventually(lambda: "waiting" in woken(bench), "the refused pod is woken")
    # A difference from the API server: each kind of object is read again.
    for resource in ("pods", "nodes", "resourcequotas"):
        bench.api.faults.add(fault="drop", resource=resource, verb="watch")
    kube.create(bound("unseen", "n1", "GPU-n1-0", 1))
    kube.annotate_node("n1", {"hami.io/node-nvidia-register": None})
    kube.set_quota("gpus", {"requests.nvidia.com/gpu": "7"})
    assert (await live.compare()).differing >= 3
    events = EventRecorder(live.client, "test", EventSettings(per_second=1000.0))
    for _ in range(2):
        events.warning(PodRef("default", "waiting", "uid"), "Overcommitted", "Report", "a note")
        await events._send(events._queue.get_nowait())


async def test_the_extender_may_do_what_it_does_and_nothing_else() -> None:
    lease = LeaseSettings(duration_seconds=600.0, retry_seconds=0.05)
    settings = replace(live_settings(lock_mode=True, http_timeout_seconds=2.0), leader_elect=True, lease=lease)
    objects = (node("n1"), bound("holder", "n1", "GPU-n1-0", 900), quota({"requests.nvidia.com/gpu": "9"}))
    served, cluster = ("resource.k8s.io/v1", "kubevirt.io/v1"), Settings(raw_keys=("nvidia.com/A100",))
    async with running(*objects, settings=settings, served=served, cluster=cluster) as bench:
        await eventually(lambda: bench.api.requests.count(resource="leases", method="PUT") > 0)
        await everything(bench)
        assert requested(bench.api) == rules_of(EXTENDER, "live/rbac.yaml")


async def test_who_evicts_may_do_that_as_well_and_nothing_else() -> None:
    async with running(node("n1"), holder("low"), settings=evicting()) as bench, Beside() as beside:
        beside.start(queue(bench).run())
        bench.kube.create(with_priority(pod("high", memory=500), HIGH))
        await is_bound(bench, "high")
        await eventually(lambda: "Preempted" in notes(bench))
        further = requested(bench.api) - rules_of(EXTENDER, "live/rbac.yaml")
    assert further == rules_of(EXTENDER, "evict/rbac.yaml")


async def test_who_decides_where_holds_are_may_write_that_and_nothing_else() -> None:
    source = HoldSource("gpu-extender.io", "v1alpha1", "holds")
    cluster = Settings(raw_keys=(K,), hold_sets=True, hold_source=source)
    served = ("kubevirt.io/v1", "gpu-extender.io/v1alpha1")
    async with running(raw_node(), hold("g0"), served=served, cluster=cluster) as bench:
        await eventually(lambda: said(bench, "g0") == ("n1", "Bound"))
        further = requested(bench.api) - rules_of(EXTENDER, "live/rbac.yaml")
    assert {each for each in further if each.group == "gpu-extender.io"} == rules_of(EXTENDER, "holds/rbac.yaml")
    assert {each.group for each in further} == {"gpu-extender.io"}


async def test_who_taints_devices_may_do_that_as_well_and_nothing_else() -> None:
    settings = replace(live_settings(), taints=TaintSettings())
    slices = resource_slice(gpu("gpu-0", "GPU-n1-0"))
    objects = (node("n1"), slices, bound("p", "n1", "GPU-n1-0", 1))
    async with running(*objects, served=("resource.k8s.io/v1",), settings=settings) as bench:
        await eventually(lambda: bench.api.requests.count(resource="devicetaintrules", method="POST") > 0)
        bench.kube.delete_pod("p")
        await eventually(lambda: bench.api.requests.count(resource="devicetaintrules", method="DELETE") > 0)
        further = requested(bench.api) - rules_of(EXTENDER, "live/rbac.yaml")
    assert further == rules_of(EXTENDER, "taints/rbac.yaml")


async def test_who_follows_the_schedulers_lease_reads_it_only() -> None:
    lease = LeaseSettings(name=SCHEDULER, duration_seconds=600.0, retry_seconds=0.05)
    settings = replace(live_settings(), follow_lease=True, leader_elect=False, lease=lease)
    async with ApiServer() as api:
        api.load([node("n1")])
        extender = await Extender.boot(api.url, settings)
        await eventually(lambda: api.requests.count(resource="leases") > 3)
        await extender.kill()
        of_leases = {each for each in requested(api) if each.resource == "leases"}
    assert of_leases == {
        each for each in rules_of(EXTENDER, "install/second-scheduler/rbac.yaml") if each.name == SCHEDULER
    }


async def test_a_handshake_patches_a_node_whatever_the_lock_mode() -> None:
    vendor = next(each for each in VENDORS.values() if each.handshake_annotation)
    registered = node("n1", annotations={vendor.register_annotation: "DCU-0,4,16384,100,DCU-Z100,0,true,0,DCU:"})
    async with running(registered, cluster=Settings(NVIDIA, further_vendors=(vendor,))) as bench:
        keeper: HandshakeKeeper = bench.live.handshakes
        await keeper.look()
        found = {each for each in requested(bench.api) if each.verb == "patch"}
    assert found <= {Allowed("", "nodes", "patch")}


# -- who has which account ---------------------------------------------------------------------------------------------


def test_the_extender_and_the_scheduler_have_accounts_of_their_own() -> None:
    files = ("live/rbac.yaml", "install/second-scheduler/rbac.yaml")
    roles: dict[str, set[str]] = {EXTENDER: set(), SCHEDULER: set()}
    for each in documents(*files):
        if each["kind"].endswith("RoleBinding"):
            (subject,) = each["subjects"]
            roles[subject["name"]].add(each["roleRef"]["name"])
    assert roles[SCHEDULER] == {
        "system:kube-scheduler",
        "system:volume-scheduler",
        "extension-apiserver-authentication-reader",
        "gpu-scheduler-leases",
    }
    assert roles[EXTENDER] == {"gpu-extender", "gpu-extender-leases", "gpu-extender-follows"}
    both = rules_of(SCHEDULER, *files) & rules_of(EXTENDER, *files)
    assert both == {
        Allowed("coordination.k8s.io", "leases", "create"),
        Allowed("coordination.k8s.io", "leases", "get", SCHEDULER),
    }


def test_neither_container_has_the_others_token() -> None:
    (deployment,) = (each for each in documents("install/base/deployment.yaml") if each["kind"] == "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (EXTENDER, False)
    patch = yaml.safe_load((MANIFESTS / "install/second-scheduler/deployment.yaml").read_text())
    added = [each["value"] for each in patch if isinstance(each["value"], dict)]
    containers = [*spec["containers"], *(each for each in added if "image" in each)]
    mounts = {each["name"]: {mount["name"] for mount in each["volumeMounts"]} for each in containers}
    assert "extender-account" in mounts["gpu-extender"] - mounts["kube-scheduler"]
    assert "scheduler-account" in mounts["kube-scheduler"] - mounts["gpu-extender"]
    volumes = {each["name"]: each for each in [*spec["volumes"], *added]}
    assert volumes["scheduler-account"]["secret"]["secretName"] == "gpu-scheduler-token"
    (token,) = (each for each in documents("install/second-scheduler/rbac.yaml") if each["kind"] == "Secret")
    assert token["metadata"]["annotations"] == {"kubernetes.io/service-account.name": SCHEDULER}


def test_only_the_webhooks_can_be_reached_over_the_network() -> None:
    (deployment,) = (each for each in documents("install/base/deployment.yaml") if each["kind"] == "Deployment")
    (policy,) = documents("install/base/network-policies.yaml")
    template, allowed = deployment["spec"]["template"], policy["spec"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert allowed["policyTypes"] == ["Ingress", "Egress"]
    open_ports = [port["port"] for rule in allowed["ingress"] for port in rule["ports"]]
    declared = [port["containerPort"] for each in template["spec"]["containers"] for port in each.get("ports", ())]
    assert open_ports == declared == [9443]
    arguments = template["spec"]["containers"][0]["args"]
    assert {"--bind-address=127.0.0.1", "--webhook-bind-address=0.0.0.0", "--webhook-port=9443"} <= set(arguments)


def _comments(path: str) -> Iterator[list[str]]:
    """Return the lines of each rule, with those of the comment before it."""
    lines, block = (MANIFESTS / path).read_text().splitlines(), list[str]()
    for line in lines:
        if line.startswith("  - apiGroups") and block and not block[-1].startswith("  #"):
            yield [*block, line]
        block = [*block[-1:], line]


@pytest.mark.parametrize("path", ["live/rbac.yaml", "install/second-scheduler/rbac.yaml", "evict/rbac.yaml"])
def test_every_rule_says_what_it_is_for(path: str) -> None:
    assert list(_comments(path)) == []
