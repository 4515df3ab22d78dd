"""Patches pods of an API server, to make watch events: as fast as it can, or that many a second.

It exists as a process of its own, so that making events takes nothing from the time of what is measured beside them.
It must not know the extender. Invariant: an event that was sent was answered with 200; the last line of the output says
how many there were.

    python -m benchmarks.live_events URL TARGETS --kind status|inits [--events N] [--per-second N] [--skip N]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import orjson

from benchmarks.live_dump import Target, read_targets

STATUS: Final = "status"
INITS: Final = "inits"
_CLIENTS: Final = 8
#: At full speed one request carries many writes. The server carries them out one by one, with an event for each.
_BATCH: Final = 50
_FAST_CLIENTS: Final = 2
_HEADERS: Final = {"Content-Type": "application/merge-patch+json"}
_RUNNING: Final = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
_ENDED_AT: Final = "2026-01-01T00:01:00Z"


class Patch(NamedTuple):
    """One write."""

    path: str
    body: bytes


def patches(targets: Sequence[Target], kind: str, skip: int = 0) -> Iterator[Patch]:
    """Yield patches without end. Each changes its pod: its readiness, or whether its inits are over.

    `skip`: this many pods are left to the process that made events before, so that a pod's inits do not end twice.
    """
    chosen = [target for target in targets if target.inits] if kind == INITS else list(targets)
    first = skip % max(1, len(chosen))
    chosen = chosen[first:] + chosen[:first]
    run = time.time_ns()
    for turn in itertools.count():
        for target in chosen:
            status = _inits(target, over=turn % 2 == 1) if kind == INITS else _readiness(target, turn)
            path = f"/api/v1/namespaces/{target.namespace}/pods/{target.name}/status"
            # Whatever was patched before, this patch changes the pod.
            yield Patch(path, orjson.dumps({"status": status | {"message": f"run {run}, turn {turn}"}}))


def _readiness(target: Target, turn: int) -> dict[str, Any]:
    ready = {"type": "Ready", "status": ("False", "True")[turn % 2], "lastTransitionTime": _ENDED_AT}
    others = [each for each in target.conditions if each["type"] != "Ready"]
    return {"conditions": [*others, ready]}


def _inits(target: Target, *, over: bool) -> dict[str, Any]:
    """Return statuses: the inits run again, or all have ended. What the pod holds grows back, or shrinks."""
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": _ENDED_AT}}
    statuses = [each | {"state": ended if over else _RUNNING} for each in target.inits]
    return {"initContainerStatuses": statuses}


async def send(url: str, source: Iterator[Patch], events: int, per_second: float) -> int:
    """Send that many, or until cancelled; returns how many were answered."""
    sent = 0
    started, numbers, batches = time.monotonic(), itertools.count(), itertools.count()

    async def client(session: aiohttp.ClientSession) -> None:
        nonlocal sent
        for number in numbers:
            if number >= events:
                return
            await asyncio.sleep(max(0.0, started + number / per_second - time.monotonic()))
            patch = next(source)
            async with session.patch(url + patch.path, data=patch.body, headers=_HEADERS) as response:
                await response.read()
                if response.status != 200:
                    raise RuntimeError(f"{patch.path}: {response.status}")
            sent += 1

    async def fast_client(session: aiohttp.ClientSession) -> None:
        nonlocal sent
        while (count := min(_BATCH, events - next(batches) * _BATCH)) > 0:
            batch = [{"path": patch.path, "body": orjson.Fragment(patch.body)} for patch in islice(source, count)]
            async with session.post(f"{url}/_test/patch", data=orjson.dumps(batch)) as response:
                if response.status != 200:
                    raise RuntimeError(f"{response.status}: {await response.text()}")
            sent += count

    try:
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            for _ in range(_CLIENTS if per_second else _FAST_CLIENTS):
                group.create_task(client(session) if per_second else fast_client(session))
    except asyncio.CancelledError:
        pass
    return sent


async def _run(options: argparse.Namespace) -> None:
    source = patches(read_targets(options.targets), options.kind, options.skip)
    task = asyncio.create_task(send(options.url, source, options.events, options.per_second))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    started = time.monotonic()
    sent = await task
    print(orjson.dumps({"events": sent, "seconds": time.monotonic() - started}).decode())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_events", description=__doc__.partition("\n")[0])
    parser.add_argument("url", help="of the API server")
    parser.add_argument("targets", type=Path, help="written by benchmarks.live_dump")
    parser.add_argument("--kind", choices=(STATUS, INITS), default=STATUS)
    parser.add_argument("--events", type=int, default=sys.maxsize, help="default: until SIGTERM")
    parser.add_argument("--per-second", type=float, default=0.0, help="default: as fast as it can")
    parser.add_argument("--skip", type=int, default=0, help="pods left out at first")
    asyncio.run(_run(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
