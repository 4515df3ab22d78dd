"""A pod that must wait until another one shrinks, and one that waits for nothing.

It exists because the peak matters most to the pods that are refused for it. It must not print. Invariant: the second
pod is refused exactly while the first is at its peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.demo_client import Client, DemoError, Filtered
from benchmarks.demo_pods import ALLOCATED, DONE, GIB, RUNNING, DemoPod
from benchmarks.demo_run import place
from benchmarks.demo_stories import app, init, sidecar
from benchmarks.processes import ROOT

Json = dict[str, Any]

_USE_CARD = "nvidia.com/use-gpuuuid"
_REGISTER = "hami.io/node-nvidia-register"
MEMORY_TEXT = "InsufficientMemory"


class Row(NamedTuple):
    """The card that both pods want, at one moment, in MiB."""

    event: str
    first: int
    second: int
    free: int
    answer: str


class Waiting(NamedTuple):
    """How the second pod fared, and why it was refused."""

    node: str
    card: Json
    rows: list[Row]
    explained: Json
    wrong: list[str]


class TooMuch(NamedTuple):
    """The answers about a pod that fits no card: how many nodes gave each text, and one node's reasons."""

    pod: DemoPod
    counts: dict[str, int]
    explained: Json
    wrong: list[str]


def wait_for_shrink(client: Client, node: Json, card: Json) -> Waiting:
    """Bind a pod whose init nearly fills a card, and ask for a second pod before and after the init's end."""
    whole = card["capacity"]["memory"] // GIB
    first = DemoPod(
        "first", (sidecar("metrics", 2), init("warm-up", whole - 8), app("server", 10)), {_USE_CARD: card["uuid"]}
    )
    second = DemoPod("second", (app("trainer", whole // 2),), {_USE_CARD: card["uuid"]})
    name = node["node"]
    place(client, first, [name])
    rows, wrong = [], []

    def look(event: str, *, fits: bool) -> None:
        answer = _answer(client.filter(second.object, [name]), name)
        if (answer == "passes") is not fits or not (fits or answer.startswith(MEMORY_TEXT)):
            wrong.append(f"{event}: {answer}")
        rows.append(_row(client, event, (first, second), name, card, answer))

    client.put(first.move({"metrics": RUNNING, "warm-up": RUNNING}, "Pending"))
    look("the first pod's init runs", fits=False)
    explained = explain(second, node, [first], client)
    client.put(first.move({"warm-up": DONE}, "Pending"))
    look("the init has ended with 0", fits=True)
    place(client, second, [name])
    rows.append(_row(client, "the second pod is bound", (first, second), name, card, "bound"))
    for pod in (first, second):
        client.delete(pod.name)
    return Waiting(name, card, rows, explained, wrong)


def ask_too_much(client: Client, nodes: list[Json]) -> TooMuch:
    """Ask every node for more than any card has."""
    largest = max(card["capacity"]["memory"] for node in nodes for card in node["devices"])
    pod = DemoPod("too-large", (app("trainer", largest // GIB + 16),))
    filtered = client.filter(pod.object, [node["node"] for node in nodes])
    client.delete(pod.name)
    texts = list(filtered.failed.values()) + list(filtered.unresolvable.values())
    counts = {text: texts.count(text) for text in sorted(set(texts), key=lambda text: (-texts.count(text), text))}
    wrong = [f"node {name} takes it" for name in filtered.passed]
    wrong += [f"node {name} is said to become possible: {text}" for name, text in filtered.failed.items()]
    node = max(nodes, key=lambda each: max((card["capacity"]["memory"] for card in each["devices"]), default=0))
    return TooMuch(pod, counts, explain(pod, node, [], client), wrong)


def explain(pod: DemoPod, node: Json, bound: list[DemoPod], client: Client) -> Json:
    """Run the command `explain` on one node as the API shows it, with these pods of ours on it."""
    items = [_node_manifest(node), *(_bound_manifest(each, client) for each in bound)]
    with TemporaryDirectory(prefix="demo-") as folder:
        cluster = Path(folder) / "cluster.json"
        cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        command = [sys.executable, "-m", "extender", "explain", "-f", "-", "--cluster", str(cluster), "-o", "json"]
        manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod.object})
        done = subprocess.run(command, cwd=ROOT, input=manifest, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise DemoError(f"explain: {done.stderr.strip()}")
    answer: Json = json.loads(done.stdout)["nodes"][0]
    return answer


def _answer(filtered: Filtered, node: str) -> str:
    if node in filtered.passed:
        return "passes"
    return filtered.failed.get(node) or filtered.unresolvable[node]


def _row(client: Client, event: str, pods: tuple[DemoPod, DemoPod], node: str, card: Json, answer: str) -> Row:
    held = []
    for pod in pods:
        account = client.pod(pod.uid)
        held.append(account["held"].get(card["uuid"], {}).get("memory", 0) if account else 0)
    found = next(each for each in client.nodes() if each["node"] == node)
    free = next(each["free"]["memory"] for each in found["devices"] if each["uuid"] == card["uuid"])
    return Row(event, held[0], held[1], free, answer)


def _node_manifest(node: Json) -> Json:
    cards = [
        {
            "id": card["uuid"],
            "index": card["index"],
            "count": card["capacity"]["slots"],
            "devmem": card["capacity"]["memory"],
            "devcore": card["capacity"]["cores"],
            "type": card["type"],
            "numa": card["numa"],
            "mode": card["mode"],
            "health": card["healthy"],
        }
        for card in node["devices"]
    ]
    meta = {"name": node["node"], "annotations": {_REGISTER: json.dumps(cards)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


def _bound_manifest(pod: DemoPod, client: Client) -> Json:
    """Return the pod with the allocation that it got, as an API server would show it."""
    account = client.pod(pod.uid)
    if account is None:
        raise DemoError(f"pod {pod.name} is not listed")
    rows = (
        "".join(f"{card['uuid']},NVIDIA,{card['memory']},{card['cores']}:" for card in container["devices"])
        for container in account["containers"]
    )
    annotations = {**pod.annotations, ALLOCATED: "".join(f"{row};" for row in rows)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        **pod.object,
        "metadata": pod.object["metadata"] | {"annotations": annotations},
    }
