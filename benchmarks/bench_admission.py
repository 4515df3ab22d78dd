"""Admits 10,000 pods in a minute over TLS, with 5,000 quotas, and replaces the certificate meanwhile.

    python -m benchmarks.bench_admission [-o docs/bench_admission.json]

Each admission is what an API server does for one pod: /mutate, then /validate of the changed pod. The server is a
process of its own and shares the machine with 50 connections. A run takes about a minute and a half.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.admission_load import HARD_MIB, NAMESPACES, USED_MIB, Load, admissions
from benchmarks.processes import Server, running
from extender.security.pki import Issued, issue

_CONNECTIONS: Final = 50
_PER_MINUTE: Final = 10_000
_NODES: Final = 700
_TARGET_MS: Final = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--admissions", type=int, default=_PER_MINUTE)
    parser.add_argument("--burst", type=int, default=5_000, help="admissions as fast as they go, afterwards")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        report = _measure(Path(folder), arguments)
    print(json.dumps(report, indent=2))
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    ok = report["paced"]["failed"] == report["burst"]["failed"] == 0 and report["certificate"]["replaced"] == 1
    return 0 if ok else 1


def _measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    dump = folder / "cluster.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(_objects())}))
    first, second = (issue(["127.0.0.1"], datetime.now(UTC), timedelta(days=1)) for _ in range(2))
    trusted = folder / "ca.crt"
    trusted.write_bytes(first.ca + second.ca)
    _put(folder, first)
    port = _free_port()
    load_before = os.getloadavg()[0]
    serve = ["extender", "serve", "--port", "0", "--cluster", str(dump), "--webhook-port", str(port)]
    serve += ["--tls-cert-file", str(folder / "tls.crt"), "--tls-private-key-file", str(folder / "tls.key")]
    with running(serve) as server:
        rate = _PER_MINUTE / 60
        change = threading.Timer(arguments.admissions / rate / 2, _put, (folder, second))
        change.start()
        paced = _run(
            "10,000 a minute", Load(port, trusted, admissions(arguments.admissions, arguments.seed), rate), server
        )
        change.join()
        burst = _run(
            "as fast as it goes", Load(port, trusted, admissions(arguments.burst, arguments.seed + 1), 0), server
        )
        replaced = _metric(server, 'gpu_extender_tls_reloads_total{result="replaced"}')
        memory = server.resident_mib()
    return {
        "machine": {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load average": round(load_before, 1),
        },
        "cluster": {"quotas": NAMESPACES, "pods": NAMESPACES, "cards": _NODES * 8},
        "connections": _CONNECTIONS,
        "paced": paced,
        "burst": burst,
        "certificate": {"replaced": int(replaced)},
        "server memory MiB": memory,
        "target": {"p99 ms of each call": _TARGET_MS, "reached": _is_reached(paced)},
    }


def _run(title: str, load: Load, server: Server) -> dict[str, Any]:
    number = len(load._work)  # noqa: SLF001 - the same benchmark
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    cpu = _cpu_seconds(server.pid)
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        task = progress.add_task(title, total=number)
        seconds = load.run(_CONNECTIONS, lambda done: progress.update(task, completed=done))
        progress.update(task, completed=number)
    used = _cpu_seconds(server.pid) - cpu
    return {
        "admissions": number,
        "per minute": round(number / seconds * 60),
        "failed": len(load.failures),
        "failures": load.failures[:5],
        "handshakes": load.connections,
        "mutate ms": _summary(each.mutate for each in load.times),
        "validate ms": _summary(each.validate for each in load.times),
        "both since due ms": _summary(each.since_due for each in load.times),
        "server CPU ms per admission": round(used / number * 1000, 2),
        "server cores": round(used / seconds, 2),
    }


def _summary(seconds: Iterable[float]) -> dict[str, float]:
    ordered = sorted(each * 1000 for each in seconds)
    if not ordered:
        return {}
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 2) for name, share in at.items()}


def _is_reached(paced: dict[str, Any]) -> bool:
    return all(paced[call].get("p99", _TARGET_MS) < _TARGET_MS for call in ("mutate ms", "validate ms"))


def _objects() -> Iterable[dict[str, Any]]:
    for number in range(_NODES):
        cards = [
            {
                "id": f"GPU-{number}-{card}",
                "index": card,
                "count": 10,
                "devmem": 81_920,
                "devcore": 100,
                "type": "A100",
                "health": True,
            }
            for card in range(8)
        ]
        meta = {"name": f"n{number}", "annotations": {"hami.io/node-nvidia-register": json.dumps(cards)}}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": meta,
            "status": {"allocatable": {"nvidia.com/gpu": "80"}},
        }
    for number in range(NAMESPACES):
        namespace = f"team-{number:04d}"
        hard = {
            "limits.nvidia.com/gpumem": str(HARD_MIB),
            "limits.nvidia.com/gpucores": "800",
            "requests.nvidia.com/gpu": "64",
        }
        meta = {"name": "gpus", "namespace": namespace}
        yield {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
        node, card = divmod(number % (_NODES * 8), 8)
        rows = f"GPU-{node}-{card},NVIDIA,{USED_MIB},0:;"
        resources = {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(USED_MIB)}}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "old",
                "namespace": namespace,
                "uid": f"uid-{number}",
                "annotations": {"hami.io/vgpu-devices-allocated": rows},
            },
            "spec": {"nodeName": f"n{node}", "containers": [{"name": "main", "resources": resources}]},
            "status": {"phase": "Running"},
        }


def _put(folder: Path, pair: Issued) -> None:
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        new = folder / f".{name}"
        new.write_bytes(content)
        new.rename(folder / name)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _metric(server: Server, name: str) -> float:
    # The server checks the files every second.
    time.sleep(1.5)
    with urllib.request.urlopen(f"{server.address}/metrics", timeout=10) as response:  # noqa: S310 - loopback
        text = response.read().decode()
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return float(line.rpartition(" ")[2])


if __name__ == "__main__":
    sys.exit(main())
