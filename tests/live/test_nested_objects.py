"""Pods nested more deeply than the interpreter decodes, as a kube-apiserver stores and serves them.

It exists because one of them ended every list and watch that it was in: whoever may create a pod also writes its
managedFields, of which a kube-apiserver of 1.37 kept 9,990 levels. It must not depend on the interpreter's limit.
Invariant: such a pod counts as every other.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import web

from extender.config import Settings
from extender.journal import FileJournal
from extender.journal.journal import read_journal
from extender.kube.listing import Page
from extender.live.fetching import _converted
from extender.live.replaying import Replay
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json, bound, node, pod
from tests.live.harness import Bench, Extender, eventually, live_settings
from tests.live.harness_scheduler import Scheduler
from tests.live.kube_harness import scripted

GPU = "GPU-n1-0"
#: Stands for the deep value where the API server for tests stores it; it decodes no more than 1,024 levels itself.
MARK = b'"@deep"'
DEEP = b'{"f:a":' * 9_900 + b"{}" + b"}" * 9_900


def deep(made: Json) -> Json:
    """The pod with managedFields that were written by hand."""
    fields = [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": "@deep"}]
    return made | {"metadata": made["metadata"] | {"managedFields": fields}}


@asynccontextmanager
async def deepening(url: str) -> AsyncIterator[str]:
    """A proxy before an API server, which writes the deep value for its mark."""
    async with aiohttp.ClientSession(url) as session:

        async def forward(request: web.Request) -> web.StreamResponse:
            body, kind = await request.read(), request.headers.get("Content-Type", "application/json")
            async with session.request(
                request.method, request.rel_url, data=body, headers={"Content-Type": kind}
            ) as answer:
                if "watch" not in request.query:
                    text = (await answer.read()).replace(MARK, DEEP)
                    return web.Response(status=answer.status, body=text, content_type="application/json")
                response = web.StreamResponse(status=answer.status)
                await response.prepare(request)
                while line := await answer.content.readline():
                    await response.write(line.replace(MARK, DEEP))
                return response

        async with scripted(forward) as proxy:
            yield proxy


@asynccontextmanager
async def running_behind(journal: FileJournal, *objects: Json) -> AsyncIterator[Bench]:
    """An extender whose API server serves deep pods."""
    async with ApiServer() as api, deepening(api.url) as url:
        api.load(objects)
        bench = Bench(api, live_settings())
        bench.extender = await Extender.boot(url, bench.settings, journal=journal)
        try:
            await bench.extender.ready()
            bench.scheduler = Scheduler(bench.extender.session, bench.kube)
            await eventually(lambda: {"pods", "nodes"} <= bench._watched(), "the watches are open")
            yield bench
        finally:
            await bench.extender.kill()
            bench.audit.close()


async def test_it_is_listed_watched_bound_and_gone_as_every_other(tmp_path: Path) -> None:
    journal = FileJournal(str(tmp_path / "journal"))
    before = deep(bound("before", "n1", GPU, 100)), bound("other", "n1", GPU, 50)
    async with running_behind(journal, node("n1"), *before) as bench:
        assert bench.live.cluster.cache.pods.keys() == {"uid-before", "uid-other"}
        await bench.agrees()
        await bench.scheduler.place(bench.kube.create(deep(pod("p", memory=30))))
        assert bench.kube.node_of("p") == "n1"
        await bench.agrees()
        compared = (await bench.live.compare()).as_json()
        assert (compared["differences"], compared["comparison"]["complete"]) == ([], True)
        bench.kube.delete_pod("before")
        bench.kube.set_status("p", {"phase": "Succeeded"})
        await bench.caught_up()
        await bench.agrees()
        assert bench.live.cluster.cache.pods.keys() == {"uid-other"}
    journal.close()
    # What was recorded of it is read again.
    summary = Replay(Settings()).run(read_journal(str(tmp_path / "journal")))
    assert (summary.bookings, summary.difference) == (1, None)


def test_a_page_that_is_just_decoded_is_converted_as_well() -> None:
    """CPython 3.11 decodes 995 levels less the calls that led there."""
    other = json.dumps(bound("other", "n1", GPU)).encode()
    for levels in (*range(960, 1_000), 9_900):
        raw = json.dumps(bound("deep", "n1", GPU)).encode()[:-1] + b',"x":%b}' % (b"[" * levels + b"]" * levels)
        found = _converted("Pod", Page("1", [msgspec.Raw(raw), msgspec.Raw(other)]), Settings())
        assert ([each.name for each in found.pods], found.problems) == (["deep", "other"], ())
