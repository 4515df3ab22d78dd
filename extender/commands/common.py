"""What the commands share: reading pods and clusters, and printing.

It must not know a command. Invariant: nothing is printed before everything has been read.
"""

import sys
from collections.abc import Iterable, Sequence

import orjson

from accounting.pod import Pod
from extender.cluster import Cluster, checked_pod, collect, garbage_collector_paused
from extender.commands.raw_budgets import RawBudgetFile
from extender.commands.terminal import cut, fitted, terminal_width, watched
from extender.config import Settings
from extender.convert import InputError, pod_manifests, read_manifests
from extender.printable import printable


def read_pods(path: str, settings: Settings) -> list[Pod]:
    """Read the Pods of a file and those of workloads' templates; other kinds are skipped. Raises `InputError`."""
    manifests = read_manifests(path, "-f")
    pods = list(pod_manifests(manifests))
    if not pods:
        raise InputError(
            "kind",
            manifests[0].kind if manifests else "(none)",
            f"{path} holds no Pod and no workload with a pod template",
        )
    return [checked_pod(manifest, settings) for manifest in pods]


def expected_pods(path: str | None, settings: Settings) -> list[Pod] | None:
    """Read the Pods of --expected-workload; None without a file. Raises `InputError`."""
    if path is None:
        return None
    pods = [checked_pod(each, settings) for each in read_manifests(path, "--expected-workload") if each.kind == "Pod"]
    if not pods:
        raise InputError("--expected-workload", path, "holds no Pod")
    return pods


def read_cluster(paths: Iterable[str], settings: Settings, raw_budgets: str | None = None) -> Cluster:
    """Read cluster files, and a file of budgets, into an embedded cluster. Raises `InputError`."""
    cluster = Cluster(settings)
    with garbage_collector_paused():
        manifests = (manifest for path in paths for manifest in read_manifests(path, "--cluster"))
        cluster.load(collect(watched(manifests, "objects read"), settings))
    RawBudgetFile(raw_budgets, cluster)
    return cluster


def print_json(value: object) -> None:
    """Print indented JSON."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Print text lines. Whatever their text, each stays one line and moves no cursor."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return rows as aligned columns under a header, cut to the width of a terminal that shows them."""
    cells = [[printable(str(cell)) for cell in row] for row in (header, *rows)]
    widths = fitted([max(len(row[column]) for row in cells) for column in range(len(header))], terminal_width())
    return [
        "  ".join(cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
