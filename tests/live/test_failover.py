"""How long no replica answers after a process is killed, with real processes at default settings.

It exists because this time is the cost of losing one process. It must not look into the processes. Invariants: a
replica takes over early only with proof that the holder of the Lease is gone, and else waits for the Lease; no Binding
that was on its way takes a card that another pod got.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from extender.live.leading.lease import Term
from extender.live.leading.predecessors import Predecessors
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.apiserver.statuses import ApiError
from tests.extender.objects import node, pod
from tests.live.harness import Kube, eventually, report
from tests.live.leader_harness import candidate, holder_of, leads, wait_rounds, write_lease
from tests.live.process_harness import Process, serving
from tests.live.test_serve_live import binding

#: The only setting that is not default: the device plugin's lock is not measured here.
DEFAULTS = ("--lock-mode", "none")


# -- the proof ---------------------------------------------------------------------------------------------------------


def test_who_gets_the_lock_knows_who_held_it_before(tmp_path: Path) -> None:
    path, term = str(tmp_path / "lock"), Term("uid", 3)
    first = Predecessors.take(path, "pod-1", "a")
    assert first is not None
    assert (first.gone, first.led) == (frozenset(), None)
    first.note_led(term)
    assert Predecessors.take(path, "pod-1", "b") is None
    first.close()
    second = Predecessors.take(path, "pod-1", "b")
    assert second is not None
    assert (set(second.gone), second.led) == ({"a"}, term)
    second.close()
    # A process that is killed before it gets the Lease leaves the earlier ones known.
    third = Predecessors.take(path, "pod-1", "c")
    assert third is not None
    assert third.gone == {"a", "b"}
    third.close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pod_uid":"pod-2","identities":["a"]}', b"\xff" * 100_000])
def test_what_is_of_another_pod_or_cannot_be_read_proves_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(content)
    taken = Predecessors.take(str(path), "pod-1", "b")
    assert taken is not None
    assert (taken.gone, taken.led) == (frozenset(), None)
    taken.close()


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        Predecessors.take(str(tmp_path / "link"), "", "a")


async def test_a_holder_that_is_proven_gone_is_not_waited_for_and_its_writes_are_ruled_out() -> None:
    async with ApiServer() as api:
        write_lease(api, "gone", 600)
        async with candidate(api, "b", gone=frozenset({"gone"})) as one:
            await leads(one)
            assert (holder_of(api), one.others_unknown) == ("b", [True])


async def test_another_holder_is_waited_for() -> None:
    async with ApiServer() as api:
        write_lease(api, "alive", 600)
        async with candidate(api, "b", gone=frozenset({"gone", "b"})) as one:
            await wait_rounds(api, 5)
            assert (holder_of(api), one.elected) == ("alive", [])


# -- real processes ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[ApiServer, Path]]:
    async with ApiServer() as api:
        api.load([node("n1"), *(pod(f"waiting-{number}", memory=5000) for number in range(20))])
        yield api, write_kubeconfig(tmp_path / "kc", api.url)


async def ready_after(process: Process, began: float) -> float:
    await process.answers("/readyz", 200)
    return time.monotonic() - began


@pytest.mark.real_time
async def test_the_only_replica_that_was_killed_is_back_at_once(tmp_path: Path) -> None:
    """A Binding that it sent comes late; its card goes to no other pod meanwhile."""
    flags: tuple[Any, ...] = (*DEFAULTS, "--predecessor-lock", tmp_path / "lock")
    async with cluster(tmp_path) as (api, kubeconfig):
        kube = Kube(api)
        async with serving(kubeconfig, *flags) as first:
            await first.answers("/readyz", 200)
            late, other = kube.create(pod("late", memory=900)), kube.create(pod("other", memory=900))
            slow = api.faults.add(fault="latency", seconds=600.0, resource="pods/binding", times=1)
            bind = asyncio.create_task(first.post("/bind", binding(late)))
            await eventually(lambda: slow.hits == 1)
            killed = time.monotonic()
            first.send(signal.SIGKILL)
            await asyncio.gather(bind, return_exceptions=True)
            await first.end()
            async with serving(kubeconfig, *flags) as second:
                started = time.monotonic() - killed
                took = await ready_after(second, killed)
                report(
                    f"the only replica after SIGKILL: {took:.1f} s, {started:.1f} s of which its process took to start"
                )
                assert await second.post("/bind", binding(other)) == {"Error": ""}
                assert kube.node_of("other") == "n1"
                # The late Binding names the version that the pod had.
                meta = {key: late["metadata"][key] for key in ("name", "uid", "resourceVersion")}
                late_binding = {"metadata": meta, "target": {"kind": "Node", "name": "n1"}}
                with pytest.raises(ApiError, match="Precondition failed"):
                    kube.send("POST", "/api/v1/namespaces/default/pods/late/binding", late_binding)
                assert await second.stop() == 0
    assert took < 10.0


@pytest.mark.real_time
async def test_a_second_replica_takes_over_from_one_that_was_killed_and_from_one_that_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (api, kubeconfig), serving(kubeconfig, *DEFAULTS) as first:
        await first.answers("/readyz", 200)
        async with serving(kubeconfig, *DEFAULTS) as second:
            await second.answers("/livez", 200)
            await second.answers("/readyz", 503)
            began = time.monotonic()
            first.send(signal.SIGKILL)
            killed = await ready_after(second, began)
            async with serving(kubeconfig, *DEFAULTS) as third:
                await third.answers("/livez", 200)
                await third.answers("/readyz", 503)
                # It must have seen the Lease held.
                await wait_rounds(api, 8)
                began = time.monotonic()
                ending = asyncio.create_task(second.stop())
                ended = await ready_after(third, began)
                assert await ending == 0
                assert await third.stop() == 0
    report(f"the other replica after SIGKILL: {killed:.1f} s, after a clean end: {ended:.1f} s")
    assert killed < 15.0
    assert ended < 5.0
