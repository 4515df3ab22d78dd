"""Sends bodies made up from a seed to every verb and webhook, and counts what came back.

It exists because ten thousand bodies find what the few hundred of a test run do not. It must not judge; see
`tests.extender.malformed`. Invariant: the server runs in a process of its own and is asked over loopback.

    python -m benchmarks.malformed [--bodies 10000] [--seed 2] [-o docs/malformed.json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import orjson

from benchmarks import processes
from tests.extender.malformed import VERBS, bodies, wrong
from tests.extender.objects import listed, node
from tests.extender.serving import Answer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.malformed", description=__doc__.partition("\n")[0])
    parser.add_argument("--bodies", type=int, default=10_000, help="for each verb (%(default)s)")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        dump = Path(folder) / "cluster.json"
        dump.write_text(listed(node("n1"), node("n2")), encoding="utf-8")
        with processes.extender([dump]) as server:
            figures = asyncio.run(_send(server, arguments.bodies, arguments.seed))
    text = orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if arguments.output is not None:
        arguments.output.write_bytes(text)
    sys.stdout.write(text.decode())
    return 1 if any(each["wrong"] for each in figures["verbs"].values()) else 0


async def _send(server: processes.Server, number: int, seed: int) -> dict[str, Any]:
    host, port = server.address
    figures: dict[str, Any] = {"seed": seed, "resident_mib_before": server.resident_mib(), "verbs": {}}
    async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
        for verb in VERBS:
            statuses, bad, slowest = Counter[str](), list[str](), 0.0
            for body in bodies(verb, seed, number):
                began = time.perf_counter()
                async with session.post(f"/{verb}", data=body, headers={"Content-Type": "application/json"}) as said:
                    answer = Answer(said.status, await said.read())
                slowest = max(slowest, time.perf_counter() - began)
                statuses[str(answer.status)] += 1
                why = wrong(verb, answer)
                if why:
                    bad.append(f"{why}: {body!r}"[:500])
            figures["verbs"][verb] = {
                "bodies": number,
                "statuses": dict(statuses),
                "slowest_ms": round(slowest * 1000, 1),
                "wrong": bad[:10],
            }
    return figures | {"resident_mib_after": server.resident_mib()}


if __name__ == "__main__":
    sys.exit(main())
