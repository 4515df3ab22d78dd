"""What the commands share: reading pods and clusters, and printing.

It must not know a command. Invariant: nothing is printed before everything was read.
"""

import sys
from collections.abc import Iterable, Sequence

import orjson

from accounting.pod import Pod
from extender.cluster import Cluster, checked_pod, garbage_collector_paused, load_objects
from extender.config import Settings
from extender.convert import InputError, read_manifests
from extender.printable import printable


def read_pods(path: str, settings: Settings) -> list[Pod]:
    """Read the Pods of a file; other kinds beside them are passed over. Raises `InputError`."""
    manifests = read_manifests(path, "-f")
    pods = [manifest for manifest in manifests if manifest.kind == "Pod"]
    if not pods:
        raise InputError("kind", manifests[0].kind if manifests else "(none)", f"{path} holds no Pod")
    return [checked_pod(manifest, settings) for manifest in pods]


def expected_pods(path: str | None, settings: Settings) -> list[Pod] | None:
    """Read the Pods of --expected-workload; None without a file. Raises `InputError`."""
    if path is None:
        return None
    pods = [checked_pod(each, settings) for each in read_manifests(path, "--expected-workload") if each.kind == "Pod"]
    if not pods:
        raise InputError("--expected-workload", path, "holds no Pod")
    return pods


def read_cluster(paths: Iterable[str], settings: Settings) -> Cluster:
    """Read cluster files into an embedded cluster. Raises `InputError`."""
    cluster = Cluster(settings)
    with garbage_collector_paused():
        cluster.load(load_objects(paths, settings))
    return cluster


def print_json(value: object) -> None:
    """Print indented JSON."""
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.flush()


def print_lines(lines: Iterable[str]) -> None:
    """Print text lines. Whatever stands in them, each stays one line and moves no cursor."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return rows as aligned columns under a header."""
    cells = [[printable(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
