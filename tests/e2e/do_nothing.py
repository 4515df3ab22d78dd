"""A do-nothing extender: filter passes every node, prioritize scores none or all as 0, bind posts the Binding.

It exists as the yardstick of throughput: what the protocol costs when nothing is decided. It must not import the
extender. Invariant: same server library, same verbs and same JSON library as the extender, so only the deciding
differs.

    python -m tests.e2e.do_nothing --port 9999 --url https://... --token T --authority FILE [--list-every-host]
"""

import argparse
import asyncio
import ssl
import sys
from collections.abc import Sequence

import aiohttp
import orjson
from aiohttp import web

_MAX_BODY_BYTES = 256 * 2**20


class DoNothing:
    """The three verbs."""

    def __init__(self, session: aiohttp.ClientSession, *, list_every_host: bool) -> None:
        self._session = session
        self._list_every_host = list_every_host

    async def filter(self, request: web.Request) -> web.Response:
        """Every node passes."""
        names = orjson.loads(await request.read())["NodeNames"]
        answer = {"Nodes": None, "NodeNames": names, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
        return _answer(answer)

    async def prioritize(self, request: web.Request) -> web.Response:
        """No node is better than another."""
        names = orjson.loads(await request.read())["NodeNames"]
        return _answer([{"Host": name, "Score": 0} for name in names] if self._list_every_host else [])

    async def bind(self, request: web.Request) -> web.Response:
        """The Binding, and nothing else."""
        asked = orjson.loads(await request.read())
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": asked["PodName"], "namespace": asked["PodNamespace"], "uid": asked["PodUID"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": asked["Node"]},
        }
        path = f"/api/v1/namespaces/{asked['PodNamespace']}/pods/{asked['PodName']}/binding"
        headers = {"Content-Type": "application/json"}
        async with self._session.post(path, data=orjson.dumps(body), headers=headers) as response:
            text = await response.text()
        return _answer({"Error": "" if response.status < 300 else text})


def _answer(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


async def ready(_request: web.Request) -> web.Response:
    """It is ready as soon as it listens."""
    return web.Response()


async def _serve(arguments: argparse.Namespace) -> None:
    context = ssl.create_default_context(cafile=arguments.authority)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    headers = {"Authorization": f"Bearer {arguments.token}"}
    async with aiohttp.ClientSession(arguments.url, headers=headers, connector=connector) as session:
        verbs = DoNothing(session, list_every_host=arguments.list_every_host)
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.add_routes(
            [
                web.post("/filter", verbs.filter),
                web.post("/prioritize", verbs.prioritize),
                web.post("/bind", verbs.bind),
                web.get("/readyz", ready),
            ]
        )
        runner = web.AppRunner(app, access_log=None, keepalive_timeout=120)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", arguments.port).start()
        await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.do_nothing", description="An extender that is none.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--url", required=True, help="of the API server")
    parser.add_argument("--token", required=True)
    parser.add_argument("--authority", required=True, help="certificate of the API server")
    parser.add_argument("--list-every-host", action="store_true", help="score every node 0 instead of listing none")
    asyncio.run(_serve(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
