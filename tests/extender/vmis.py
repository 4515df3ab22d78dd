"""VirtualMachineInstances, nodes with whole devices and pods that request them, as plain dictionaries.

It exists so that a test of raw keys shows only units, and which VMI lists which pod. It must not import the code under
test. Invariant: a launcher carries what virt-controller writes on it, whether a VMI lists it or not.
"""

from collections.abc import Sequence

from tests.extender.objects import Json, container, pod

K = "nvidia.com/GH100_H200_SXM_141GB"


def raw_node(name: str = "n1", units: int = 8, key: str = K) -> Json:
    """A node with whole devices and no shared cards."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "64", key: str(units)}},
    }


def units_of(units: int, key: str = K) -> Json:
    """A container's resources."""
    return {"limits": {key: str(units)}, "requests": {key: str(units)}}


def raw_pod(name: str = "p", units: int = 1, *, vmi: str = "a", node: str | None = None, **other: object) -> Json:
    """A pod that claims to launch a VMI, as virt-controller writes it."""
    made = pod(name, [container("compute", units_of(units))], node=node, **other)  # type: ignore[arg-type]
    if node is not None and "status" not in other:
        made["status"] = {"phase": "Running"}
    made["metadata"] |= {
        "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": f"uid-vmi-{vmi}"},
        "ownerReferences": [
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "name": vmi,
                "uid": f"uid-vmi-{vmi}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    made["metadata"].setdefault("annotations", {})["kubevirt.io/domain"] = vmi
    return made


def vmi(
    name: str = "a",
    listed: Sequence[str] = (),
    *,
    units: int = 1,
    node: str | None = "n1",
    namespace: str = "default",
    key: str = K,
    phase: str = "Running",
    migration: Json | None = None,
    claims: int = 0,
) -> Json:
    """A VMI with that many devices of a key, and that many by DRA claims. `listed`: UIDs of its pods."""
    gpus = [{"name": f"gpu{number}", "deviceName": key} for number in range(units)]
    gpus += [{"name": f"dra{number}", "claimName": "c", "requestName": "r"} for number in range(claims)]
    status: Json = {"phase": phase, "activePods": dict.fromkeys(listed, node or "")}
    if node is not None:
        status["nodeName"] = node
    if migration is not None:
        status["migrationState"] = migration
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-vmi-{name}"},
        "spec": {"domain": {"devices": {"gpus": gpus}}},
        "status": status,
    }
