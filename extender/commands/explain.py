"""`explain -f POD --cluster FILE`: which nodes take a pod, on which cards, and why the others do not.

It ignores the pod's own booking. It does not judge taints, affinity or CPU.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from extender.cluster import Learner
from extender.commands.common import expected_pods, print_json, print_lines, read_cluster, read_pods, table
from extender.config import Settings
from extender.reports import explain

_LIMITS = "Taints, affinity, CPU and memory of the node are not judged here; kube-scheduler does that."


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Run the command; 1 if some pod fits no node. Raises `InputError`."""
    pods = read_pods(arguments.filename, settings)
    cluster = read_cluster(arguments.cluster, settings)
    if any(pod.policies.node.looks_ahead for pod in pods):
        Learner(cluster, expected_pods(arguments.expected_workload, settings)).learn_now()
    answers = [explain(cluster, pod) for pod in pods]
    if arguments.output == "json":
        print_json(answers[0] if len(answers) == 1 else answers)
    else:
        print_lines(line for answer in answers for line in _text(answer))
    return 0 if all(any(node["fits"] for node in answer["nodes"]) for answer in answers) else 1


def _text(answer: dict[str, Any]) -> Iterator[str]:
    fitting = [node for node in answer["nodes"] if node["fits"]]
    yield f"pod {answer['pod']}: fits {len(fitting)} of {len(answer['nodes'])} nodes"
    rows = []
    for node in sorted(fitting, key=lambda node: -node["score"]):
        cards = [
            f"{uuid} (slots {use['slots']}, {use['memory']} MiB, cores {use['cores']})"
            for uuid, use in node["devices"].items()
        ]
        rows.append((node["node"], node["score"], ", ".join(cards) or "-"))
    if rows:
        yield from table(("NODE", "SCORE", "CARDS AT ITS PEAK"), rows)
    for names, reasons in _refusals(answer["nodes"]):
        yield f"{'node' if len(names) == 1 else f'{len(names)} nodes'} refused: {', '.join(names)}"
        for reason in reasons:
            yield f"  {reason['code']}: {reason['message']}"
            if reason["devices"]:
                yield f"    cards: {', '.join(reason['devices'])}"
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
    yield from dict.fromkeys(f"  {row['resource']}: {why}" for row in quotas for why in row["differs"])


def _refusals(nodes: list[dict[str, Any]]) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """Yield the names of nodes that refuse for the same reasons, and those reasons."""
    groups: dict[str, tuple[list[str], list[dict[str, Any]]]] = {}
    for node in nodes:
        if not node["fits"]:
            groups.setdefault(repr(node["reasons"]), ([], node["reasons"]))[0].append(node["node"])
    yield from groups.values()
