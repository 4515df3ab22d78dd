"""An extender that decides nothing: filter returns the names that it was given, prioritize an empty list.

It exists as the yardstick: it shows what a call costs when nothing is decided. It must not import the extender.
Invariant: it has the server library, the verbs and the JSON library of the extender, so only the deciding differs.

python -m benchmarks.echo_server [--port PORT]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

import orjson
from aiohttp import web

_MAX_BODY_BYTES = 256 * 2**20


async def echo(request: web.Request) -> web.Response:
    names = orjson.loads(await request.read())["NodeNames"]
    answer = {
        "Nodes": None,
        "NodeNames": names,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def no_scores(request: web.Request) -> web.Response:
    orjson.loads(await request.read())
    return web.Response(body=b"[]", content_type="application/json")


async def _serve(port: int) -> None:
    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.add_routes([web.post("/filter", echo), web.post("/prioritize", no_scores)])
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=120)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    sys.stdout.write(f"listens on http://127.0.0.1:{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.echo_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    asyncio.run(_serve(parser.parse_args(argv).port))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
