"""Reading files into the embedded cluster's objects.

It must not change a cluster. Invariant: one object that cannot be used becomes a problem and does not stop the others.
"""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TypeVar

from accounting.disruption import DisruptionBudget
from accounting.holders import VirtualMachineInstance, VmiKey
from accounting.node import Node
from accounting.pod import Pod
from accounting.quota import Quota
from accounting.status import Problem, ProblemCode
from extender.cluster.dra_objects import DraObjects
from extender.cluster.objects import Objects
from extender.config import Settings
from extender.convert import (
    InputError,
    Manifest,
    claimed_requests,
    convert_claim,
    convert_disruption_budget,
    convert_node,
    convert_pod,
    convert_quota,
    convert_slice,
    convert_vmi,
    mapped_resource,
    misnamed,
    read_manifests,
    without_claimed,
)
from extender.wire import core_v1, kubevirt_v1, policy_v1, resource_v1

_EXAMPLE = "example-cluster.yaml"
_Named = TypeVar(
    "_Named",
    core_v1.Node,
    core_v1.Pod,
    core_v1.ResourceQuota,
    policy_v1.PodDisruptionBudget,
    kubevirt_v1.VirtualMachineInstance,
    resource_v1.DeviceClass,
    resource_v1.ResourceClaim,
    resource_v1.ResourceSlice,
)


def example_cluster() -> str:
    """Return the path of the bundled example: packaged in a wheel, else in the checkout."""
    packaged = resources.files("extender").joinpath(_EXAMPLE)
    if packaged.is_file():
        return str(packaged)
    return str(Path(__file__).parents[2] / "manifests" / "examples" / "cluster.yaml")


def load_objects(paths: Iterable[str], settings: Settings) -> Objects:
    """Read cluster files. Of two objects with the same identity the last one counts. Raises `InputError` for a file."""
    with garbage_collector_paused():
        return collect((manifest for path in paths for manifest in read_manifests(path, "--cluster")), settings)


@contextmanager
def garbage_collector_paused() -> Iterator[None]:
    """Pause the collector: a large dump makes millions of objects that all stay, and visiting them doubles the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect(manifests: Iterable[Manifest], settings: Settings) -> Objects:
    """Convert objects of the kinds that count: those of `_PROBLEM_OF_KIND`; others are passed over."""
    nodes: dict[str, Node] = {}
    pods: dict[str, Pod] = {}
    quotas: dict[tuple[str, str], Quota] = {}
    budgets: dict[tuple[str, str], DisruptionBudget] = {}
    vmis: dict[VmiKey, VirtualMachineInstance] = {}
    dra = DraObjects()
    problems: list[Problem] = []
    served: list[core_v1.Pod] = []
    for manifest in manifests:
        try:
            if manifest.kind == "Node":
                node = convert_node(_named(manifest, core_v1.Node), settings)
                nodes[node.name] = node
            elif manifest.kind == "Pod":
                wire = _named(manifest, core_v1.Pod)
                pod = convert_pod(wire, settings)
                pods[pod.uid] = pod
                served += [wire] if claimed_requests(wire)[0] else []
            elif manifest.kind == "ResourceQuota":
                quota = convert_quota(_named(manifest, core_v1.ResourceQuota), settings)
                quotas[quota.namespace, quota.name] = quota
            elif manifest.kind == "PodDisruptionBudget":
                budget = convert_disruption_budget(_named(manifest, policy_v1.PodDisruptionBudget))
                budgets[budget.namespace, budget.name] = budget
            elif manifest.kind == "VirtualMachineInstance":
                vmi = convert_vmi(_named(manifest, kubevirt_v1.VirtualMachineInstance), settings)
                vmis[vmi.key] = vmi
            else:
                _take_dra(manifest, dra)
        except InputError as error:
            problems.append(Problem(_PROBLEM_OF_KIND[manifest.kind], manifest.where, str(error)))
    for wire in served:
        _leave_out_claimed(wire, pods, dra, settings)
    return Objects(
        tuple(nodes.values()),
        tuple(pods.values()),
        tuple(quotas.values()),
        tuple(problems),
        tuple(budgets.values()),
        tuple(vmis.values()),
        dra,
    )


def _leave_out_claimed(wire: core_v1.Pod, pods: dict[str, Pod], dra: DraObjects, settings: Settings) -> None:
    """Leave out of a pod what a claim of its own has been given for it, which that claim counts."""
    pod, (name, requests) = convert_pod(wire, settings), claimed_requests(wire)
    own = (each for each in dra.claims.values() if (each.owner, each.name) == (pod.uid, name))
    if pod.node is not None and any(claim.results for claim in own):
        left = convert_pod(without_claimed(wire, requests), settings)
        pods[pod.uid] = left._replace(api_charge=pod.api_charge)


def _take_dra(manifest: Manifest, dra: DraObjects) -> None:
    """Convert an object of DRA; other kinds are passed over. Raises `InputError`."""
    if manifest.kind == "DeviceClass":
        name, mapped = mapped_resource(_named(manifest, resource_v1.DeviceClass))
        dra.classes[name] = mapped
    elif manifest.kind == "ResourceClaim":
        claim = convert_claim(_named(manifest, resource_v1.ResourceClaim))
        dra.claims[claim.uid] = claim
    elif manifest.kind == "ResourceSlice":
        found = convert_slice(_named(manifest, resource_v1.ResourceSlice))
        dra.slices[found.name] = found


def checked_pod(manifest: Manifest, settings: Settings) -> Pod:
    """Convert a Pod given by a person: it needs a name and containers. Raises `InputError`."""
    wire = manifest.decode(core_v1.Pod)
    pod = convert_pod(wire, settings)
    if not pod.name:
        raise InputError("metadata.name", "(empty)", "a pod needs a name")
    _check_names(wire.metadata)
    if wire.spec is None or not wire.spec.containers:
        raise InputError("spec.containers", "[]", f"pod {pod.key} has no containers")
    return pod


def check_requests(pod: Pod) -> None:
    """Raise `InputError` for the first unusable request, unless an annotation says what the pod holds."""
    if pod.allocation is None and pod.invalid:
        invalid = pod.invalid[0]
        raise InputError(invalid.field, invalid.value, invalid.why)


_PROBLEM_OF_KIND = {
    "Node": ProblemCode.UNREADABLE_REGISTER,
    "Pod": ProblemCode.UNDECODABLE_ALLOCATION,
    "ResourceQuota": ProblemCode.UNKNOWN_QUOTA_KEY,
    "PodDisruptionBudget": ProblemCode.UNREADABLE_BUDGET,
    "VirtualMachineInstance": ProblemCode.UNREADABLE_VIRTUAL_MACHINE,
    "DeviceClass": ProblemCode.UNMAPPED_DEVICE,
    "ResourceClaim": ProblemCode.UNMAPPED_DEVICE,
    "ResourceSlice": ProblemCode.UNMAPPED_DEVICE,
}


def _named(manifest: Manifest, kind: type[_Named]) -> _Named:
    """Decode an object, which must have a name that an API server accepts. Raises `InputError`."""
    wire = manifest.decode(kind)
    if wire.metadata is None or not wire.metadata.name:
        raise InputError("metadata.name", manifest.kind, "an object needs a name")
    _check_names(wire.metadata)
    return wire


def _check_names(meta: core_v1.ObjectMeta | None) -> None:
    for illegal in misnamed(meta):
        raise InputError(illegal.field, illegal.value, illegal.why)
