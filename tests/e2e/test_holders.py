"""Who else holds a card, on a real API server: VMs, hold sets, DRA claims, and what says it is one of them.

It exists because claims, slices, taint rules and custom resources are validated and served there as nowhere else. It
must not repeat amounts that smaller tests show. Invariants: the CRD of VMIs is KubeVirt's by name and kind; what a pod
says of itself changes nothing; what is expected is read from the API server and from the extender's lists.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import pytest
import yaml

from tests.e2e.conftest import Planes
from tests.e2e.control_plane import ControlPlane, scheduler_configuration
from tests.e2e.language import node_of
from tests.e2e.processes import ROOT
from tests.e2e.world import NAMESPACE, Refusal, World
from tests.extender.dra import gpu, resource_claim, resource_slice, result
from tests.extender.objects import Json, asks, container, pod
from tests.extender.vmis import K, raw_pod, vmi

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
DRA: Final = "/apis/resource.k8s.io/v1"
CLAIMS: Final = f"{DRA}/namespaces/{NAMESPACE}/resourceclaims"
VMIS: Final = f"/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachineinstances"
HOLDS: Final = f"/apis/gpu-extender.io/v1alpha1/namespaces/{NAMESPACE}/holds"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: The CRD is looked for every one to two minutes.
FOUND_SECONDS: Final = 180.0
#: Minors before DeviceTaintRule was served, and where what DRA serves as extended resources has a gate of its own.
OLD: Final = {"1.34": ("DRAExtendedResource",), "1.35": ("DRAExtendedResource",)}
ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
KUBEVIRT: Final = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "virtualmachineinstances.kubevirt.io"},
    "spec": {
        "group": "kubevirt.io",
        "scope": "Namespaced",
        "names": {
            "kind": "VirtualMachineInstance",
            "plural": "virtualmachineinstances",
            "singular": "virtualmachineinstance",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": ANYTHING},
            }
        ],
    },
}


class Holders:
    """One cluster with everything that may hold a card."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kube = world.kube
        self._numbers = itertools.count()

    # -- doing ----------------------------------------------------------------------------------------------------

    async def node(self, name: str, cards: str, units: int) -> None:
        made = node_of(name, cards)
        for part in ("capacity", "allocatable"):
            made["status"][part] |= {K: str(units)}
        await self.kube.send("POST", "/api/v1/nodes", made)

    async def pod(self, made: Json, *, scheduler: str = "gpu-scheduler", bound: bool = False) -> str:
        """A pod of our scheduler, of nobody, or bound by somebody else; its UID."""
        made = orjson.loads(orjson.dumps(made))
        # The API server gives UIDs, and knows no owner that is not there; there is no garbage collector here.
        made["metadata"].pop("uid", None)
        where = made["spec"].pop("nodeName", None)
        made["spec"] |= {"schedulerName": scheduler, "automountServiceAccountToken": False}
        status = made.pop("status", {})
        created = await self.kube.send("POST", PODS, made)
        name = made["metadata"]["name"]
        if bound:
            target = {"apiVersion": "v1", "kind": "Node", "name": where}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            await self.kube.send("POST", f"{PODS}/{name}/binding", body)
        if status:
            await self.kube.send("PATCH", f"{PODS}/{name}/status", {"status": status})
        return str(created["metadata"]["uid"])

    async def claim(self, made: Json) -> None:
        """A claim with its allocation, as kube-scheduler leaves it."""
        await self.kube.send("POST", CLAIMS, {key: value for key, value in made.items() if key != "status"})
        allocation = {"status": {"allocation": made["status"]["allocation"]}}
        await self.kube.send("PATCH", f"{CLAIMS}/{made['metadata']['name']}/status", allocation)

    async def virtual_machine(self, made: Json) -> None:
        made = {**made, "metadata": {key: value for key, value in made["metadata"].items() if key != "uid"}}
        status = made.pop("status")
        await self.kube.send("POST", VMIS, made)
        await self.kube.send("PATCH", f"{VMIS}/{made['metadata']['name']}/status", {"status": status})

    async def listing(self, name: str, *uids: str, node: str = "", **status: Any) -> None:  # noqa: ANN401 - JSON
        """virt-controller lists pods of a VMI, after it has made them."""
        patch = {"status": {"activePods": dict.fromkeys(uids, node), **status}}
        await self.kube.send("PATCH", f"{VMIS}/{name}/status", patch)

    async def ask(self, verb: str, body: Json) -> Json:
        """What the extender answers when it is asked as kube-scheduler asks."""
        url, data = f"/{verb}", orjson.dumps(body)
        async with aiohttp.ClientSession(self.world.extender.url) as session, session.post(url, data=data) as response:
            answer: Json = orjson.loads(await response.read())
        return answer

    # -- expecting ------------------------------------------------------------------------------------------------

    async def holds(self, fact: Callable[[], Any], what: str, seconds: float = 40.0) -> Any:  # noqa: ANN401
        """Wait for what an asynchronous question answers."""
        found: Any = None
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with suppress(aiohttp.ClientError, Refusal):
                        found = await fact()
                        if found:
                            return found
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}; it is {found}") from None

    async def where(self, name: str) -> str | None:
        found: str | None = (await self.kube.send("GET", f"{PODS}/{name}"))["spec"].get("nodeName")
        return found

    async def placed(self, name: str, node: str) -> None:
        async def is_placed() -> bool:
            return await self.where(name) == node

        await self.holds(is_placed, f"pod {name} is on {node}")

    async def free(self, units: int) -> None:
        async def is_free() -> bool:
            options = await self.world.extender.get("/api/v1/options")
            (found,) = (each for each in options["raw"] if each["key"] == K)
            return bool(found["free"] == units)

        await self.holds(is_free, f"{units} units are free")

    async def requested(self, uuid: str, memory: int) -> None:
        async def is_requested() -> bool:
            nodes = await self.world.extender.get("/api/v1/nodes")
            cards = {card["uuid"]: card for node in nodes for card in node["devices"]}
            return bool(cards[uuid]["requested"]["memory"] == memory)

        await self.holds(is_requested, f"{memory} MiB of {uuid} are held")

    async def set_is(self, name: str, state: str, *nodes: str) -> None:
        async def is_so() -> bool:
            entries = await self.world.extender.get("/api/v1/holds")
            found = {each["vmi"]: (each["state"], each["nodes"]) for each in entries}
            return found.get(f"{NAMESPACE}/{name}") == (state, list(nodes))

        await self.holds(is_so, f"the set of {name} is {state} on {nodes}")

    async def problems(self, *codes: str) -> None:
        async def are() -> bool:
            found = (await self.world.extender.get("/api/v1/verify"))["problems"]
            return sorted(each["code"] for each in found) == sorted(codes)

        await self.holds(are, f"problems are {codes}")

    async def agrees(self) -> None:
        """The extender's comparison with the API server finds nothing."""

        async def is_same() -> bool:
            found = await self.world.extender.get("/api/v1/verify")
            return found["comparison"]["complete"] and not found["differences"]

        await self.holds(is_same, "cache and API server agree")


def _manifests(*paths: str) -> list[Json]:
    texts = [(ROOT / "manifests" / path).read_text() for path in paths]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


@asynccontextmanager
async def holders(plane: ControlPlane, folder: Path, *options: str) -> AsyncIterator[Holders]:
    """A cluster that is asked about whole devices as well; what was made in it is gone afterwards."""
    # Rights by an extended resource are part of the Pod's status only where the API server knows the field.
    for manifest in _manifests("holds/rbac.yaml", "taints/rbac.yaml"):
        await asyncio.to_thread(plane.apply, manifest)
    world = World(plane, folder, options=("--lock-mode", "none", "--raw-key", K, *options))
    async with world:
        configuration = scheduler_configuration(world.extender.url)
        configuration["extenders"][0]["managedResources"].append({"name": K, "ignoredByScheduler": True})
        plane.start_scheduler(configuration, folder / "kube-scheduler.log")
        try:
            yield Holders(world)
        except BaseException:
            await world.write_evidence()
            raise
        finally:
            await clean(world)


async def clean(world: World) -> None:
    """Delete what was made for a test of holders."""
    for path in (CLAIMS, f"{DRA}/resourceslices", f"{DRA}/devicetaintrules", VMIS, HOLDS):
        with suppress(Refusal, aiohttp.ClientError, ValueError):
            for each in await world.kube.items(path):
                await world.kube.send("DELETE", f"{path}/{each['metadata']['name']}")
    for name in ("virtualmachineinstances.kubevirt.io", "holds.gpu-extender.io"):
        with suppress(Refusal, aiohttp.ClientError, ValueError):
            await world.kube.send("DELETE", f"{CRDS}/{name}")


async def install_crd(world: World, definition: Json, path: str) -> None:
    """Install a CRD, and wait until it is served."""
    await world.kube.send("POST", CRDS, definition)
    for _ in range(300):
        # What is not served is answered by a text.
        with suppress(Refusal, ValueError):
            await world.kube.items(path)
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{path} is not served")


def _served_by_dra(name: str, claim: str) -> Json:
    made = pod(name, [container("main", {"limits": {"nvidia.com/gpu": "1"}})], node="n1")
    mappings = [{"containerName": "main", "requestName": "main", "resourceName": "nvidia.com/gpu"}]
    said = {"resourceClaimName": claim, "requestMappings": mappings}
    return made | {"status": {"phase": "Running", "extendedResourceClaimStatus": said}}


def _card(uuid: str) -> Mapping[str, str]:
    return {"nvidia.com/use-gpuuuid": uuid}


async def _of_claims(cluster: Holders, *, has_taints: bool) -> None:
    """Cards that DRA has given away, on a node with three of them."""
    kube = cluster.kube
    slices = resource_slice(*(gpu(f"gpu-{number}", f"GPU-n1-{number}", memory="24Mi") for number in range(4)))
    await kube.send("POST", f"{DRA}/resourceslices", slices)
    # A claim takes a card between filter and bind.
    wanted = pod("late", [container("main", asks("1", 10))], annotations=dict(_card("GPU-n1-1")))
    uid = await cluster.pod(wanted, scheduler="nobody")
    shown = await kube.send("GET", f"{PODS}/late")
    passed = await cluster.ask("filter", {"Pod": shown, "Nodes": None, "NodeNames": ["n1", "n2"]})
    assert passed["NodeNames"] == ["n1"]
    await cluster.claim(resource_claim("taker", result("gpu-1"), node="n1"))
    binding = {"PodName": "late", "PodNamespace": NAMESPACE, "PodUID": uid, "Node": "n1"}
    assert (await cluster.ask("bind", binding))["Error"]
    assert await cluster.where("late") is None
    await cluster.requested("GPU-n1-1", 24)
    # Nor does kube-scheduler get it there.
    await cluster.pod(pod("refused", [container("main", asks("1", 1))], annotations=dict(_card("GPU-n1-1"))))
    await cluster.pod(pod("other", [container("main", asks("1", 10))], annotations=dict(_card("GPU-n1-0"))))
    await cluster.placed("other", "n1")
    assert await cluster.where("refused") is None
    # What a pod holds keeps DRA off, until it is gone.

    async def tainted(device: str | None) -> bool:
        rules = await kube.items(f"{DRA}/devicetaintrules")
        return [each["spec"]["deviceSelector"]["device"] for each in rules] == ([] if device is None else [device])

    if has_taints:
        await cluster.holds(lambda: tainted("gpu-0"), "the card of the pod is tainted")
    await kube.send("DELETE", f"{PODS}/other?gracePeriodSeconds=0")
    if has_taints:
        await cluster.holds(lambda: tainted(None), "the taint is gone")
    # A claim that is released gives the card back, and who waits for it is woken.
    await kube.send("PATCH", f"{CLAIMS}/taker/status", {"status": {"allocation": None}})
    await cluster.placed("refused", "n1")
    await kube.send("DELETE", f"{PODS}/refused?gracePeriodSeconds=0")


async def _of_extended_resources(cluster: Holders) -> None:
    """DR-14, DR-23 and DR-24: what a pod says of a claim counts only if the claim says so too."""
    kube = cluster.kube
    labelled = _served_by_dra("served", "given")
    labelled["metadata"]["labels"] = {"hami.io/dra": "true"}
    owner = await cluster.pod(labelled, scheduler="nobody", bound=True)
    await cluster.problems("MissingAllocation")
    of_another = resource_claim("foreign", result("gpu-2"), node="n1", owner={"name": "x", "uid": "somebody-else"})
    await cluster.claim(of_another)
    await cluster.requested("GPU-n1-2", 24)
    await cluster.problems("MissingAllocation")
    await cluster.claim(resource_claim("given", result("gpu-3"), node="n1", owner={"name": "served", "uid": owner}))
    await cluster.problems()
    await cluster.requested("GPU-n1-3", 24)
    for name in ("foreign", "given"):
        await kube.send("PATCH", f"{CLAIMS}/{name}/status", {"status": {"allocation": None}})
        await kube.send("DELETE", f"{CLAIMS}/{name}")
    await kube.send("DELETE", f"{PODS}/served?gracePeriodSeconds=0")


async def _of_machines(cluster: Holders) -> None:
    """VMs that list their pods late, that migrate, and pods that pass for theirs; eight units on two nodes."""
    kube = cluster.kube
    await cluster.free(8)
    await cluster.virtual_machine(vmi("a", units=2, node=None, phase="Pending"))

    async def found() -> bool:
        return bool(await cluster.world.extender.get("/api/v1/holds"))

    await cluster.holds(found, "VMIs are seen", FOUND_SECONDS)
    await cluster.set_is("a", "Bound", "n1")
    await cluster.free(6)
    # Owner reference and labels of a VMI that does not list it: its three devices are its own.
    await cluster.pod(raw_pod("spoof", 3))
    await cluster.placed("spoof", "n2")
    await cluster.pod(raw_pod("filler", 2))
    await cluster.placed("filler", "n1")
    await cluster.free(1)
    # The launcher is listed late: until then it has no room anywhere.
    launcher = await cluster.pod(raw_pod("launcher", 2))

    async def refused() -> bool:
        status = (await kube.send("GET", f"{PODS}/launcher")).get("status", {})
        return any(each.get("reason") == "Unschedulable" for each in status.get("conditions") or ())

    await cluster.holds(refused, "the launcher is refused")
    assert await cluster.where("launcher") is None
    await cluster.listing("a", launcher)
    await cluster.placed("launcher", "n1")
    await cluster.listing("a", launcher, node="n1", nodeName="n1", phase="Running")
    await cluster.free(1)
    await cluster.set_is("a", "Bound", "n1")
    # A second pod that the VMI lists shares the credit, and so has none: a doppelganger after it has ended has.
    double = await cluster.pod(raw_pod("double", 1, node="n2"), scheduler="nobody", bound=True)
    await cluster.listing("a", launcher, double, node="n1")
    await cluster.free(0)
    await kube.send("PATCH", f"{PODS}/double/status", {"status": {"phase": "Succeeded"}})
    await cluster.free(1)


async def _of_migrations(cluster: Holders) -> None:
    """The target of a migration that runs counts on its node and not in the budget."""
    source = await cluster.pod(raw_pod("source", 1, vmi="m", node="n2"), scheduler="nobody", bound=True)
    await cluster.virtual_machine(vmi("m", [source], units=1, node="n2"))
    await cluster.free(0)

    async def left(units: int) -> bool:
        options = await cluster.world.extender.get(f"/api/v1/options?namespace={NAMESPACE}")
        (found,) = (each for each in options["raw"] if each["key"] == K)
        return bool(found["budget"]["used"] == units)

    # launcher 2, spoof 3, filler 2, source 1
    await cluster.holds(lambda: left(8), "the budget without the target")
    await cluster.kube.send("DELETE", f"{PODS}/filler?gracePeriodSeconds=0")
    await cluster.holds(lambda: left(6), "the budget without the filler")
    state = {"sourcePod": "source", "targetPod": "target"}
    target = await cluster.pod(raw_pod("target", 1, vmi="m", node="n1"), scheduler="nobody", bound=True)
    await cluster.listing("m", source, target, node="n2", migrationState=state)
    await cluster.free(1)
    await cluster.holds(lambda: left(6), "the target is not charged")
    await cluster.listing("m", source, target, node="n2", migrationState=state | {"completed": True})
    await cluster.holds(lambda: left(7), "after the migration both are charged")


async def _of_hold_sets(cluster: Holders) -> None:
    """A node that goes takes its sets along: to another node, or to nowhere."""
    for name in ("spoof", "target", "launcher"):
        await cluster.kube.send("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    await cluster.kube.send("DELETE", "/api/v1/nodes/n1")
    await cluster.set_is("a", "Bound", "n2")
    await cluster.kube.send("PATCH", "/api/v1/nodes/n2/status", {"status": {"allocatable": {K: "1"}}})
    await cluster.set_is("a", "Lost")
    await cluster.problems("LostHolds")
    await cluster.kube.send("DELETE", f"{VMIS}/a")
    await cluster.problems()


@pytest.mark.scenario("holders")
async def test_who_else_holds_a_card(planes: Planes, minor: str, folder: Path) -> None:
    plane = planes(minor, gates=OLD.get(minor, ()))
    budgets = folder / "budgets.yaml"
    budgets.write_text(yaml.safe_dump({"budgets": [{"namespace": NAMESPACE, "hard": {K: 20}}]}))
    options = ("--hold-sets", "--taint-held-cards", "--raw-budgets", str(budgets))
    async with holders(plane, folder, *options) as cluster:
        await cluster.node("n1", "4 cards of 24", 4)
        await cluster.node("n2", "1 card of 24", 4)
        # The CRD appears when the extender has looked for it in vain.
        await install_crd(cluster.world, KUBEVIRT, VMIS)
        await _of_claims(cluster, has_taints=minor not in OLD)
        await _of_extended_resources(cluster)
        await _of_machines(cluster)
        await cluster.agrees()
        await _of_migrations(cluster)
        await cluster.agrees()
        await _of_hold_sets(cluster)


@pytest.mark.scenario("holders")
async def test_objects_of_a_custom_resource_tell_of_holds(planes: Planes, minor: str, folder: Path) -> None:
    plane = planes(minor)
    (definition,) = _manifests("holds/crd.yaml")
    await asyncio.to_thread(plane.apply, definition)
    options = ("--hold-sets", "--hold-resource", "holds.v1alpha1.gpu-extender.io")
    async with holders(plane, folder, *options) as cluster:
        await cluster.node("n1", "1 card of 24", 2)
        await cluster.node("n2", "1 card of 24", 4)
        for name in ("g0", "g1", "g2"):
            spec = {"virtualMachineInstance": "a", "resourceName": K}
            meta = {"name": name, "namespace": NAMESPACE}
            body = {"apiVersion": "gpu-extender.io/v1alpha1", "kind": "Hold", "metadata": meta, "spec": spec}
            await cluster.kube.send("POST", HOLDS, body)

        async def written(node: str | None, state: str) -> bool:
            statuses = [each.get("status") or {} for each in await cluster.kube.items(HOLDS)]
            found = {(each.get("node"), each.get("state")) for each in statuses}
            return found == {(node, state)}

        await cluster.holds(lambda: written("n2", "Bound"), "all three are bound to the node that has room")
        await cluster.kube.send("DELETE", "/api/v1/nodes/n2")
        await cluster.holds(lambda: written(None, "Lost"), "all three are lost")
        await cluster.agrees()
        for name in ("g0", "g1", "g2"):
            await cluster.kube.send("DELETE", f"{HOLDS}/{name}")
        await cluster.problems()


@pytest.mark.scenario("holders")
async def test_an_api_server_without_dra_has_nothing_to_count(planes: Planes, minor: str, folder: Path) -> None:
    """kube-scheduler is not asked: it does not start without an API that it takes for granted."""
    off = [f"resource.k8s.io/{version}=false" for version in ("v1", "v1beta2", "v1beta1")]
    plane = planes(minor, apis=off)
    world = World(plane, folder, options=("--lock-mode", "none"))
    async with world:
        cluster = Holders(world)
        await cluster.node("n1", "1 card of 24", 0)
        uid = await cluster.pod(pod("p", [container("main", asks("1", 10))]), scheduler="nobody")
        shown = await cluster.kube.send("GET", f"{PODS}/p")

        async def passes() -> bool:
            answer = await cluster.ask("filter", {"Pod": shown, "Nodes": None, "NodeNames": ["n1"]})
            return answer["NodeNames"] == ["n1"]

        await cluster.holds(passes, "the pod fits")
        binding = {"PodName": "p", "PodNamespace": NAMESPACE, "PodUID": uid, "Node": "n1"}
        assert (await cluster.ask("bind", binding))["Error"] == ""
        await cluster.placed("p", "n1")
        await cluster.problems()
        await cluster.agrees()
