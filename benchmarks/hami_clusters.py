"""Random clusters of pods that versions of HAMi wrote, and what we count on their cards beside what HAMi counts.

It exists because who moves over compares the two numbers. It must not know how either is computed: HAMi's numbers come
in a file, made from the same objects by its own scheduler. Invariants: the same seed gives the same files; a difference
that no line of docs/hami.md names ends the comparison with status 1.

    python -m benchmarks.hami_clusters write FOLDER [--clusters 200] [--seed N]
    python -m benchmarks.hami_clusters compare FOLDER NAME=FILE... [-o docs/hami_usage.json]

`write` makes cluster-NNN.json, a List of nodes and pods, and cluster-NNN.before.json, the pods as a watch has shown
them before, in order. A FILE to compare with has for each cluster {"nodes": {NODE: {CARD: [slots, MiB, cores]}},
"pods": {UID: {CARD: [slots, MiB, cores]}}}. NAME begins with the version (2.10.0), and ends with " restarted" where
HAMi's scheduler has seen no pod but as it is now.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import orjson

from accounting.pod_record import record_pod
from accounting.vendor import NVIDIA
from accounting.vendors import HYGON
from benchmarks.hami_pods import VENDORS, Version, written_pod
from extender.cluster import Cluster
from extender.cluster.loading import load_objects
from extender.config import Settings
from extender.reports import account
from extender.server import verify_report

Json = dict[str, Any]
#: Slots, MiB and percent of cores on each card.
Held = dict[str, tuple[int, int, int]]

_SETTINGS: Final = Settings(further_vendors=(HYGON,))
_STATE: Final = "gpu-extender.io/made-as"
_WRITER: Final = "gpu-extender.io/written-by"
_NODE: Final = "hami.io/vgpu-node"
_CARDS: Final = 6
_STARTED, _DELETED = "2026-11-29T10:00:00Z", "2026-11-29T12:00:00Z"
#: Lines of docs/hami.md.
FILTERED: Final = "a pod that was filtered and is not bound"
NO_COMMA: Final = "a part of an allocation that has no comma"
BEING_DELETED: Final = "a pod that is being deleted"
RUN_AGAIN: Final = "inits that run again"
RESTART: Final = "restart"
SIDECAR: Final = "a sidecar"
MOVED: Final = "rows that are left out or moved"
REASONS: Final = (FILTERED, NO_COMMA, BEING_DELETED, RUN_AGAIN, RESTART, SIDECAR, MOVED)
#: What a pod is in, and how often.
_STATES: Final = {
    "started": 8,
    "starting": 4,
    "init failed": 1,
    "inits run again": 1,
    "ended": 1,
    "being deleted": 1,
    "reserved": 1,
    "part without a comma": 1,
}


# -- writing -----------------------------------------------------------------------------------------------------------


def cluster(random: Random) -> tuple[list[Json], list[Json]]:
    """Return the objects as they are, and the pods as they were before."""
    names = [f"n{number}" for number in range(random.randint(1, 4))]
    objects, before = [_node(random, name) for name in names], []
    for number in range(random.randint(5, 40)):
        now, earlier = _pod(random, number, random.choice(names))
        objects.append(now)
        before += earlier
    return objects, before


def _node(random: Random, name: str) -> Json:
    """A node with cards of both vendors; some have fewer than pods once got."""
    cards = random.choice((_CARDS, _CARDS, _CARDS, _CARDS - 2))
    register = [
        {"id": f"GPU-{name}-{at}", "index": at, "count": 10, "devmem": 24_000, "devcore": 100, "mode": "hami-core"}
        | {"type": "NVIDIA A10", "health": random.random() < 0.9}
        for at in range(cards)
    ]
    further = "".join(f"DCU-{name}-{at},4,16000,100,Z100L,0,true,{at},hami-core:" for at in range(cards))
    annotations = {NVIDIA.register_annotation: json.dumps(register), HYGON.register_annotation: further}
    if random.random() < 0.2:
        annotations["hami.io/device-cordon"] = f"GPU-{name}-0"
    meta = {"name": name, "uid": f"node-{name}", "annotations": annotations}
    allocatable = {"nvidia.com/gpu": str(10 * cards), "hygon.com/dcunum": str(4 * cards)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": allocatable}}


def _pod(random: Random, number: int, node: str) -> tuple[Json, list[Json]]:
    """A pod as it is, and as it was."""
    version = random.choice(tuple(Version))
    text = json.dumps(written_pod(random, version).manifest)
    found: Json = json.loads(text.replace("NVIDIA-", f"GPU-{node}-").replace("DCU-", f"DCU-{node}-"))
    state = random.choices(tuple(_STATES), tuple(_STATES.values()))[0]
    made: Json = {"apiVersion": "v1", "kind": "Pod", **found}
    made["metadata"] |= {"name": f"p{number}", "uid": f"uid-{number}"}
    made["metadata"]["annotations"] |= {_NODE: node, _WRITER: version.value, _STATE: state}
    made["spec"]["nodeName"] = node
    starting = made | {"status": _status(made, over=0)}
    started = made | {"status": _status(made, over=len(_inits(made)))}
    if state == "starting":
        return made | {"status": _status(made, over=random.randint(0, max(0, len(_inits(made)) - 1)))}, [starting]
    if state == "inits run again":
        return starting, [starting, started]
    return _changed(random, state, started), [starting]


def _changed(random: Random, state: str, started: Json) -> Json:
    """What has become of a pod whose inits are over."""
    made = deepcopy(started)
    if state == "init failed":
        made["status"] = _status(made, over=len(_inits(made)), exit_code=1)
    elif state == "ended":
        made["status"]["phase"] = random.choice(("Succeeded", "Failed"))
    elif state == "being deleted":
        made["metadata"] |= {"deletionTimestamp": _DELETED, "deletionGracePeriodSeconds": 30}
    elif state == "reserved":
        del made["spec"]["nodeName"]
        made["status"] = {"phase": "Pending"}
    elif state == "part without a comma":
        notes = made["metadata"]["annotations"]
        for key in _texts(made):
            notes[key] = f"none:{notes[key]}"
    return made


def _inits(made: Json) -> list[Json]:
    """The ordinary inits."""
    return [each for each in made["spec"]["initContainers"] if not _is_sidecar(each)]


def _is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _status(made: Json, over: int, exit_code: int = 0) -> Json:
    """The status when the first so many ordinary inits are over."""
    statuses: list[Json] = []
    ended = 0
    all_over = over == len(_inits(made)) and not exit_code
    for at, each in enumerate(made["spec"]["initContainers"]):
        state: Json = {"running": {"startedAt": _STARTED}}
        if not _is_sidecar(each) and ended < over:
            ended += 1
            failed = exit_code if ended == over else 0
            # One after the other.
            times = {"startedAt": f"2026-11-29T10:{at:02}:00Z", "finishedAt": f"2026-11-29T10:{at:02}:30Z"}
            state = {"terminated": {"exitCode": failed, "reason": "Error" if failed else "Completed", **times}}
        statuses.append({"name": each["name"], "ready": True, "restartCount": 0, "state": state})
    return {"phase": "Running" if all_over else "Pending", "initContainerStatuses": statuses}


def write(folder: Path, clusters: int, seed: int) -> None:
    """Write that many clusters."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(clusters):
        objects, before = cluster(Random(f"{seed}/{number}"))
        for name, items in ((f"cluster-{number:03}", objects), (f"cluster-{number:03}.before", before)):
            text = orjson.dumps({"apiVersion": "v1", "kind": "List", "items": items}, option=orjson.OPT_INDENT_2)
            (folder / f"{name}.json").write_bytes(text)


# -- our numbers -------------------------------------------------------------------------------------------------------


class Ours(NamedTuple):
    """What we count."""

    nodes: dict[str, Held]
    """Of the cards that their node registers."""
    pods: dict[str, Held]
    gone: int
    """Cards that pods hold and no node registers."""


def ours(path: Path) -> Ours:
    """Count a cluster."""
    loaded = Cluster(_SETTINGS)
    loaded.load(load_objects([str(path)], _SETTINGS))
    nodes: dict[str, Held] = {}
    gone = 0
    for each in verify_report(loaded)["devices"]:
        gone += not each["registered"]
        if each["registered"]:
            nodes.setdefault(each["node"], {})[each["uuid"]] = _amounts(each["requested"])
    pods = {pod.uid: _held(account(pod, record_pod(pod))["held"]) for pod in loaded.pods() if pod.node}
    return Ours(nodes, pods, gone)


def _amounts(of: Mapping[str, int]) -> tuple[int, int, int]:
    return of["slots"], of["memory"], of["cores"]


def _held(of: Mapping[str, Mapping[str, int]]) -> Held:
    return {uuid: _amounts(amounts) for uuid, amounts in of.items()}


# -- why they differ ---------------------------------------------------------------------------------------------------


def reasons(made: Json, reader: str) -> Iterator[str]:
    """Yield the lines of docs/hami.md by which a reader counts a pod otherwise, or may."""
    state, version = made["metadata"]["annotations"][_STATE], reader.removesuffix(" restarted")
    restarted = reader != version
    if state == "reserved":
        yield FILTERED
    if state == "part without a comma":
        yield NO_COMMA
    if state == "being deleted" and (restarted or _inits(made)):
        yield BEING_DELETED
    if state == "inits run again" and not restarted:
        yield RUN_AGAIN
    if state == "started" and restarted and _inits(made):
        yield RESTART
    if version == "2.10.0" and any(map(_is_sidecar, made["spec"]["initContainers"])):
        yield SIDECAR
    if _rows_may_have_moved(made):
        yield MOVED


def _texts(made: Json) -> list[str]:
    keys = [vendor.devices_allocated_annotation for vendor in VENDORS]
    return [key for key in keys if key in made["metadata"]["annotations"]]


def _rows_may_have_moved(made: Json) -> bool:
    """Whether the rows are not one for each container, or a container that asks for cards has none or too many."""
    containers = [*made["spec"]["initContainers"], *made["spec"]["containers"]]
    for vendor in VENDORS:
        text = made["metadata"]["annotations"].get(vendor.devices_allocated_annotation)
        if text is None:
            continue
        rows = [row.count(",") // 3 for row in text.split(";")[:-1]]
        asked = [int(each["resources"]["limits"].get(vendor.count_resource, "0")) for each in containers]
        if len(rows) != len(asked) or any(count != row for count, row in zip(asked, rows, strict=True) if count):
            return True
    return False


# -- comparing ---------------------------------------------------------------------------------------------------------


class Unexplained(Exception):
    """A difference that no line names."""


def compare(folder: Path, reader: str, theirs: Mapping[str, Json]) -> Json:
    """Compare a reader's numbers with ours. Raises Unexplained."""
    counts: Counter[str] = Counter()
    why: Counter[str] = Counter()
    for path in sorted(folder.glob("cluster-???.json")):
        given, found = theirs[path.stem], ours(path)
        pods = {
            each["metadata"]["uid"]: each for each in json.loads(path.read_bytes())["items"] if each["kind"] == "Pod"
        }
        differ = set()
        for uid, made in pods.items():
            names = tuple(reasons(made, reader))
            if _without_nothing(_read(given["pods"].get(uid, {}))) == found.pods.get(uid, {}):
                continue
            if not names:
                raise Unexplained(f"{path.name}: pod {uid}: {given['pods'].get(uid)} there, {found.pods.get(uid)} here")
            differ.add(uid)
            why.update(names[:1])
        counts.update({"pods": len(pods), "pods that are counted alike": len(pods) - len(differ)})
        counts.update(_nodes(path.name, given["nodes"], found, [pods[uid] for uid in differ]))
        counts["cards that are held and no longer registered"] += found.gone
    return {**counts, "pods that differ, by the first reason": dict(sorted(why.items()))}


def _nodes(name: str, given: Mapping[str, Json], found: Ours, differing: list[Json]) -> Counter[str]:
    """Compare the cards of the nodes; one may only differ where a pod does. Raises Unexplained."""
    counts: Counter[str] = Counter()
    touched = {each["metadata"]["annotations"][_NODE] for each in differing}
    texts = " ".join(each["metadata"]["annotations"][key] for each in differing for key in _texts(each))
    for node, cards in found.nodes.items():
        there = _read(given[node])
        if there.keys() != cards.keys():
            raise Unexplained(f"{name}: node {node}: cards {sorted(there)} there, {sorted(cards)} here")
        alike = {uuid for uuid in cards if cards[uuid] == there[uuid]}
        for uuid in cards.keys() - alike:
            if node not in touched or uuid not in texts:
                raise Unexplained(f"{name}: card {uuid}: {there[uuid]} there, {cards[uuid]} here")
        counts.update({"nodes": 1, "cards": len(cards), "cards that are counted alike": len(alike)})
    return counts


def _read(given: Mapping[str, list[int]]) -> Held:
    return {uuid: (slots, memory, cores) for uuid, (slots, memory, cores) in given.items()}


def _without_nothing(held: Held) -> Held:
    return {uuid: amounts for uuid, amounts in held.items() if any(amounts)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hami_clusters", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("theirs", nargs="*", metavar="NAME=FILE", help="a reader's numbers")
    parser.add_argument("--clusters", type=int, default=200, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the clusters (%(default)s)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    options = parser.parse_args(arguments)
    if options.what == "write":
        write(options.folder, options.clusters, options.seed)
        return 0
    try:
        figures = {
            reader: compare(options.folder, reader, json.loads(Path(path).read_bytes()))
            for reader, _, path in (each.partition("=") for each in options.theirs)
        }
    except Unexplained as difference:
        print(difference)
        return 1
    text = orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if options.output is not None:
        options.output.write_bytes(text)
    print(text.decode(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
