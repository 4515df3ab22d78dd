"""Objects of dynamic resource allocation as plain dictionaries, as an API server of any version shows them.

It exists beside `objects`, for tests of claims alone. It must not import the code under test. Invariant: objects are as
the drivers and kube-scheduler write them.
"""

from tests.extender.objects import Json

GROUP = "resource.k8s.io"
NVIDIA, HAMI = "gpu.nvidia.com", "hami-core-gpu.project-hami.io"
PCI = "resource.kubernetes.io/pciBusID"


def gpu(name: str, uuid: str, *, pci: str = "", memory: str = "24Gi", **more: str) -> Json:
    """A whole card."""
    texts = {"type": "gpu", "uuid": uuid} | ({PCI: pci} if pci else {}) | more
    return device(name, texts, {"memory": memory})


def mig(name: str, parent: str, memory: str, multiprocessors: int) -> Json:
    """A part of a card in MIG mode, as a static partition."""
    texts = {"type": "mig", "uuid": f"MIG-{name}", "parentUUID": parent, "profile": name.split("-")[3]}
    return device(name, texts, {"memory": memory, "multiprocessors": str(multiprocessors)})


def device(name: str, texts: Json, capacity: Json | None = None) -> Json:
    """Any device."""
    attributes: Json = {key: {"string": text} for key, text in texts.items()}
    attributes |= {"index": {"int": 0}, "driverVersion": {"version": "570.0.0"}, "shared": {"bool": False}}
    return {
        "name": name,
        "attributes": attributes,
        "capacity": {key: {"value": value} for key, value in (capacity or {}).items()},
    }


def resource_slice(
    *devices: Json,
    name: str = "n1-gpus",
    node: str | None = "n1",
    pool: str = "",
    driver: str = NVIDIA,
    generation: int = 1,
    count: int = 1,
    version: str = "v1",
) -> Json:
    """A slice of a pool, by default of all of a node's cards."""
    listed = [_basic(each) for each in devices] if version == "v1beta1" else list(devices)
    where: Json = {"nodeName": node} if node is not None else {"allNodes": True}
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {"name": pool or node or "pool", "generation": generation, "resourceSliceCount": count},
            **where,
            "devices": listed,
        },
    }


def _basic(each: Json) -> Json:
    return {"name": each["name"], "basic": {key: each[key] for key in ("attributes", "capacity")}}


def result(name: str, *, driver: str = NVIDIA, pool: str = "n1", **more: object) -> Json:
    """One allocated device."""
    return {"request": "main", "driver": driver, "pool": pool, "device": name, **more}


def share(memory: str | None, cores: str | None, *, number: str = "1", name: str = "hami-gpu-0") -> Json:
    """A share of a card by HAMi's driver; None: not mentioned."""
    consumed = {key: value for key, value in (("memory", memory), ("cores", cores)) if value is not None}
    return result(name, driver=HAMI, shareID=f"share-{number}", consumedCapacity=consumed)


def resource_claim(
    name: str = "c",
    *results: Json,
    allocated: bool = True,
    node: str | None = None,
    reserved_for: int = 1,
    owner: Json | None = None,
    version: str = "v1",
    **more: object,
) -> Json:
    """A claim with these allocated devices, or none yet."""
    meta: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if owner is not None:
        meta["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": owner["name"], "uid": owner["uid"], "controller": True}
        ]
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
        "status": claim_status(*results, allocated=allocated, node=node, reserved_for=reserved_for, **more),
    }


def claim_status(
    *results: Json, allocated: bool = True, node: str | None = None, reserved_for: int = 1, **more: object
) -> Json:
    """The status of a claim."""
    users = [{"resource": "pods", "name": f"p{number}", "uid": f"uid-{number}"} for number in range(reserved_for)]
    status: Json = {"reservedFor": users, **more}
    if allocated:
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        selector = {} if node is None else {"nodeSelector": {"nodeSelectorTerms": terms}}
        status["allocation"] = {"devices": {"results": list(results)}, **selector}
    return status
