"""The nodes and pods of a kill -9 run, from a seed.

It exists so that the pods have every shape whose holdings change over time: inits that outweigh the apps, sidecars
between inits, exclusive cards, several cards at once. It must not import `accounting`. Invariant: the same random
generator gives the same pods; the cluster is soon full.
"""

import json
from random import Random
from typing import Any

Json = dict[str, Any]

COUNT, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
REGISTER = "hami.io/node-nvidia-register"
NAMESPACE = "kill"
CARDS = 2
SLOTS = 10
CARD_MEMORY_MIB = 16_384


def node(number: int) -> Json:
    """Return a node with two cards, so that some are always full."""
    name = f"n{number:02}"
    cards = [
        {
            "id": f"GPU-{name}-{index}",
            "index": index,
            "count": SLOTS,
            "devmem": CARD_MEMORY_MIB,
            "devcore": 100,
            "type": "NVIDIA L4",
            "numa": index // 2,
            "mode": "hami-core",
            "health": True,
        }
        for index in range(CARDS)
    ]
    meta = {"name": name, "annotations": {REGISTER: json.dumps(cards)}}
    status = {"allocatable": {"cpu": "64", COUNT: str(CARDS * SLOTS)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def pod(rng: Random, number: int) -> Json:
    """Return a pod: inits and sidecars in any order, then one or two apps. Some pods end by themselves, some never."""
    inits = [_init(rng, position) for position in range(rng.choice((0, 0, 1, 1, 2, 3)))]
    apps = [
        {"name": f"app-{position}", "image": "app:1", "resources": _asks(rng, exclusive=0.06)}
        for position in range(rng.choice((1, 1, 1, 2)))
    ]
    spec: Json = {"containers": apps, "restartPolicy": rng.choice(("Never", "Always"))}
    if inits:
        spec["initContainers"] = inits
    meta = {"name": f"p{number:04}", "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def small_pod(name: str) -> Json:
    """Return a pod that fits wherever there is a slot."""
    limits = {COUNT: "1", MEMORY: "1"}
    app = {"name": "app", "image": "app:1", "resources": {"limits": limits, "requests": dict(limits)}}
    meta = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [app]}}


def _init(rng: Random, position: int) -> Json:
    if rng.random() < 0.4:
        side = {"name": f"side-{position}", "image": "side:1", "restartPolicy": "Always"}
        return side | ({"resources": _asks(rng, most_mib=2000)} if rng.random() < 0.7 else {})
    init = {"name": f"init-{position}", "image": "init:1"}
    return init | ({"resources": _asks(rng, most_mib=12_000)} if rng.random() < 0.8 else {})


def _asks(rng: Random, *, most_mib: int = 5000, exclusive: float = 0.0) -> Json:
    alone = rng.random() < exclusive
    cores = 100 if alone else rng.choice((0, 5, 10, 25))
    count = rng.choice((1, 1, 1, 1, 2))
    limits = {COUNT: str(count), MEMORY: str(rng.randrange(500, most_mib, 250)), CORES: str(cores)}
    return {"limits": limits, "requests": dict(limits)}
