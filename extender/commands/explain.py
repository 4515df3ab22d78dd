"""`explain -f POD --cluster FILE`, `explain NAME --kubeconfig FILE`: which nodes take a pod, and why the others do not.

It ignores the pod's own booking. It does not judge taints, affinity or CPU.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from extender.cluster import Learner
from extender.commands.common import expected_pods, print_json, print_lines, read_pods, table
from extender.commands.sources import cluster_of, named_pod
from extender.commands.terminal import first_rows, some, watched, wrapped
from extender.config import Settings
from extender.reports import explain

_LIMITS = "Taints, affinity, CPU and memory of the node are not judged here; kube-scheduler does that."


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the command; 1 if some pod fits no node. Raises `InputError`."""
    given = None if arguments.filename is None else read_pods(arguments.filename, settings)
    cluster = cluster_of(arguments, settings)
    pods = given or [named_pod(arguments, cluster)]
    if any(pod.policies.node.looks_ahead for pod in pods):
        Learner(cluster, expected_pods(arguments.expected_workload, settings)).learn_now()
    answers = [explain(cluster, pod, lambda names: watched(names, "nodes explained", len(names))) for pod in pods]
    if arguments.output == "json":
        print_json(answers[0] if len(answers) == 1 else answers)
    else:
        print_lines(line for answer in answers for line in _text(answer))
    return 0 if all(any(node["fits"] for node in answer["nodes"]) for answer in answers) else 1


def _text(answer: dict[str, Any]) -> Iterator[str]:
    fitting = [node for node in answer["nodes"] if node["fits"]]
    yield f"pod {answer['pod']}: fits {len(fitting)} of {len(answer['nodes'])} nodes"
    rows = []
    shown, more = first_rows(sorted(fitting, key=lambda node: -node["score"]), "nodes that fit")
    for node in shown:
        names = node["node"], node["score"]
        for uuid, use in node["devices"].items() or (("-", None),):
            rows.append((*names, uuid, *(("-",) * 3 if use is None else use.values())))
            names = "", ""
    if rows:
        yield from table(("NODE", "SCORE", "CARD AT THE PEAK", "SLOTS", "MEMORY MiB", "CORES %"), rows)
    yield from more
    holders = {node["node"]: node["holders"] for node in answer["nodes"] if "holders" in node}
    groups, more = first_rows(list(_refusals(answer["nodes"])), "groups of nodes that refuse for other reasons")
    for refusing, reasons in groups:
        many = "node" if len(refusing) == 1 else f"{len(refusing):,} nodes"
        yield from wrapped(f"{many} refused: {some(refusing)}")
        for reason in reasons:
            yield from wrapped(f"{reason['code']}: {reason['message']}", "  ")
            if reason["devices"] and len(refusing) == 1:
                yield from wrapped(f"cards: {some(reason['devices'])}", "    ")
        held = dict.fromkeys(f"{each['kind']} {each['name']}" for each in holders.get(refusing[0], ()))
        if held and len(refusing) == 1:
            yield from wrapped(f"held by: {some(list(held))}", "  ")
    yield from more
    for way in answer.get("preemption", ()):
        victims = ", ".join(f"{each['pod']} (priority {each['priority']})" for each in way["victims"])
        beyond = f", {way['violations']} of them against a PodDisruptionBudget" if way["violations"] else ""
        yield from wrapped(f"would fit on {way['node']} without {victims}{beyond}")
    yield from _quotas(answer.get("quotas", []))
    for ignored in answer.get("ignored", ()):
        yield f"ignored: {ignored}"
    yield _LIMITS
    yield ""


def _quotas(quotas: list[dict[str, Any]]) -> Iterator[str]:
    """Say what the pod would add to each limit of its namespace, and what the API server charges instead."""
    heads = ("QUOTA", "RESOURCE", "HARD", "USED", "POD ADDS", "API SERVER CHARGES", "AND ADDS")
    rows = [
        (
            ", ".join((row["quota"], *row["scopes"])),
            row["resource"],
            row["hard"],
            row["used"],
            f"{'at least ' if row['at_least'] else ''}{row['adds']}",
            row["api_charge"],
            row["api_adds"],
        )
        for row in quotas
    ]
    if rows:
        yield from table(heads, rows)
    for text in dict.fromkeys(f"{row['resource']}: {why}" for row in quotas for why in row["differs"]):
        yield from wrapped(text, "  ")


def _refusals(nodes: list[dict[str, Any]]) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """Yield the names of nodes that refuse for the same reasons, and those reasons."""
    groups: dict[str, tuple[list[str], list[dict[str, Any]]]] = {}
    for node in nodes:
        if not node["fits"]:
            words = repr([(reason["code"], reason["message"]) for reason in node["reasons"]])
            groups.setdefault(words, ([], node["reasons"]))[0].append(node["node"])
    yield from groups.values()
