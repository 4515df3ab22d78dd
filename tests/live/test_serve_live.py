"""`serve --kubeconfig` from start to end: readiness, signals, the Lease, and users' mistakes.

It exists because a pod is started, stopped and killed by others. It must not look inside. Invariant: on SIGTERM or
SIGINT a process settles what it began, gives up its Lease and exits with 0.
"""

import asyncio
import json
import signal
import socket
from pathlib import Path

import pytest

from extender.cli import _parser, main
from extender.commands.serve_live import live_settings
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.extender.objects import Json, bound, listed, node, pod
from tests.live.harness import Kube, eventually
from tests.live.leader_harness import holder_of, lease_of, write_lease
from tests.live.process_harness import LONG, QUICK, refusal, serving, started
from tests.virtual_time import until

pytestmark = pytest.mark.real_time


def asked(made: Json) -> Json:
    return {"Pod": made, "Nodes": None, "NodeNames": ["n1"]}


def binding(made: Json) -> Json:
    meta = made["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}


# -- start ----------------------------------------------------------------------------------------------------------


async def test_it_serves_a_cluster_whose_api_server_is_another_process(tmp_path: Path) -> None:
    dump, kubeconfig = tmp_path / "dump.json", tmp_path / "kc"
    dump.write_text(listed(node("n1"), pod("p", memory=700)), encoding="utf-8")
    async with started("tests.apiserver", "--load", dump, "--kubeconfig", kubeconfig) as api:
        await api.listens()
        async with serving(kubeconfig, *LONG) as extender:
            assert (await extender.get("/livez"))[0] == 200
            await extender.answers("/readyz", 200)
            answer = await extender.post("/filter", asked(pod("p", memory=700)))
            assert (answer["Error"], answer["NodeNames"]) == ("", ["n1"])
            assert await extender.post("/bind", binding(pod("p", memory=700))) == {"Error": ""}
            _, nodes = await extender.get("/api/v1/nodes")
            assert json.loads(nodes)[0]["devices"][0]["requested"]["memory"] == 700
            assert await extender.stop() == 0
        _, lease = await api.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpu-extender")
        assert json.loads(lease)["spec"]["holderIdentity"] == ""


async def test_an_api_server_that_is_down_at_the_start_is_waited_for(tmp_path: Path) -> None:
    api = ApiServer()
    await api.start()
    port = int(api.url.rpartition(":")[2])
    await api.stop()
    async with serving(write_kubeconfig(tmp_path / "kc", api.url), *LONG) as extender:
        assert (await extender.get("/livez"))[0] == 200
        assert (await extender.get("/readyz"))[0] == 503
        answer = await extender.post("/filter", asked(pod("p")))
        assert answer["Error"].startswith("not ready")
        await eventually(lambda: "failed" in extender.log)
        api = ApiServer()
        api.load([node("n1")])
        await api.start(port=port)
        await extender.answers("/readyz", 200)
        assert await extender.stop() == 0
        await api.stop()


async def test_without_election_there_is_no_lease(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        async with serving(write_kubeconfig(tmp_path / "kc", api.url), "--no-leader-elect") as extender:
            await extender.answers("/readyz", 200)
            assert await extender.stop() == 0
        assert lease_of(api) is None
        assert api.requests.count(resource="leases") == 0


async def test_it_follows_the_scheduler_of_its_host(tmp_path: Path) -> None:
    flags = ("--follow-lease", "--lease-name", "gpu-extender", *QUICK)
    async with ApiServer() as api:
        api.load([node("n1")])
        write_lease(api, f"{socket.gethostname()}_1")
        async with serving(write_kubeconfig(tmp_path / "kc", api.url), *flags) as extender:

            async def is_ready() -> bool:
                write_lease(api, f"{socket.gethostname()}_1")
                return (await extender.get("/readyz"))[0] == 200

            await until(is_ready)
            write_lease(api, "elsewhere_1", 600)
            await extender.answers("/readyz", 503)
            assert await extender.stop() == 0
        assert holder_of(api) == "elsewhere_1"


# -- end ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_settles_what_is_in_flight_and_gives_the_lease_up(tmp_path: Path, number: int) -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        made = Kube(api).create(pod("p"))
        async with serving(write_kubeconfig(tmp_path / "kc", api.url), *LONG) as extender:
            await extender.answers("/readyz", 200)
            slow = api.faults.add(fault="latency", seconds=1.0, resource="pods/binding")
            bind = asyncio.create_task(extender.post("/bind", binding(made)))
            await eventually(lambda: slow.hits == 1)
            assert await extender.stop(number) == 0
            assert await bind == {"Error": ""}
            assert Kube(api).node_of("p") == "n1"
            assert holder_of(api) == ""


async def test_requests_are_answered_until_kube_scheduler_has_noticed(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        kubeconfig = write_kubeconfig(tmp_path / "kc", api.url)
        async with serving(kubeconfig, *LONG, "--shutdown-delay", "2") as extender:
            await extender.answers("/readyz", 200)
            extender.send(signal.SIGTERM)
            await extender.answers("/readyz", 503)
            assert (await extender.post("/filter", asked(pod("p"))))["NodeNames"] == ["n1"]
            assert await extender.end() == 0
            assert holder_of(api) == ""


async def test_an_api_server_that_hangs_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        async with serving(write_kubeconfig(tmp_path / "kc", api.url), *QUICK) as extender:
            await extender.answers("/readyz", 200)
            api.faults.add(fault="hang")
            assert await extender.stop() == 0


async def test_the_next_one_takes_over_from_one_that_was_killed(tmp_path: Path) -> None:
    async with ApiServer() as api:
        api.load([node("n1")])
        kubeconfig = write_kubeconfig(tmp_path / "kc", api.url)
        async with serving(kubeconfig, *QUICK) as first:
            await first.answers("/readyz", 200)
            before = holder_of(api)
            async with serving(kubeconfig, *QUICK) as second:
                assert (await second.get("/readyz"))[0] == 503
                first.send(signal.SIGKILL)
                await second.answers("/readyz", 200)
                assert holder_of(api) not in (before, "", None)
                assert await second.stop() == 0


# -- what a person did wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, why",
    [
        (("--kubeconfig", "NOWHERE"), "no such file"),
        (("--kubeconfig", "BROKEN"), "error: --kubeconfig: "),
        (("--kubeconfig", ""), "--kubeconfig"),
        (("--in-cluster",), "error: --in-cluster: true: "),
        (("--kubeconfig", "GOOD", "--in-cluster"), "cannot be used together"),
        (("--kubeconfig", "GOOD", "--cluster", "dump.json"), "cannot be used together"),
        (("--kubeconfig", "GOOD", "--http-timeout", "0"), "--http-timeout: 0: must be above 0"),
        (("--kubeconfig", "GOOD", "--predecessor-lock", "NOWHERE/lock"), "--predecessor-lock"),
        (("--kubeconfig", "GOOD", "--lease-duration", "5"), "--lease-duration: 5: must be at least three times"),
        (("--kubeconfig", "GOOD", "--lease-retry", "0"), "--lease-retry: 0: must be above 0"),
        (("--kubeconfig", "GOOD", "--journal", "NOWHERE/journal"), "--journal"),
        (("--kubeconfig", "GOOD", "--port", "99999"), "--port"),
        (("--kubeconfig", "GOOD", "--preemption", "kill"), "--preemption"),
        (("--kubeconfig", "GOOD", "--preemption-timeout", "0"), "--preemption-timeout: 0: must be above 0"),
        (("--kubeconfig", "GOOD", "--preemption-evictions-per-minute", "-1"), "--preemption-evictions-per-minute"),
        (("--kubeconfig", "GOOD", "--preemption-stop-file", ""), "--preemption-stop-file"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    why: str,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "broken").write_text("{", encoding="utf-8")
    good = write_kubeconfig(tmp_path / "good", "http://127.0.0.1:1")
    places = {"NOWHERE": tmp_path / "nowhere", "BROKEN": tmp_path / "broken", "GOOD": good}
    given = [str(places.get(word, word)).replace("NOWHERE", str(tmp_path / "nowhere")) for word in arguments]
    try:
        status = main(["serve", *given])
    except SystemExit as refused:
        status = int(str(refused.code))
    out, err = capfd.readouterr()
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert why in err


@pytest.mark.parametrize(
    "flags, name",
    [((), "gpu-extender"), (("--follow-lease",), "kube-scheduler"), (("--follow-lease", "--lease-name", "x"), "x")],
)
def test_whose_lease_it_is(flags: tuple[str, ...], name: str) -> None:
    arguments = _parser().parse_args(["serve", "--kubeconfig", "kc", *flags])
    assert live_settings(arguments).lease.name == name


async def test_a_refusal_of_a_whole_process_is_one_line_too(tmp_path: Path) -> None:
    assert "no such file" in await refusal("serve", "--kubeconfig", tmp_path / "nowhere")


async def test_an_address_that_is_taken_is_one_line(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kc", "http://127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = await refusal("serve", "--kubeconfig", kubeconfig, "--port", str(taken.getsockname()[1]))
    assert line.startswith("error: --bind-address, --port: 127.0.0.1:")


# -- evicting ---------------------------------------------------------------------------------------------------------


async def test_it_evicts_if_the_option_says_so_and_only_then(tmp_path: Path) -> None:
    low, stop = bound("low", "n1", "GPU-n1-0", 900), tmp_path / "stop"
    low["spec"] |= {"priority": 0, "terminationGracePeriodSeconds": 0}
    async with ApiServer() as api:
        api.load([node("n1"), low])
        kubeconfig = write_kubeconfig(tmp_path / "kc", api.url)
        made = pod("high", memory=500)
        made["spec"]["priority"] = 1000
        made = Kube(api).create(made)
        for options in ((), ("--preemption", "evict", "--preemption-stop-file", str(stop))):
            async with serving(kubeconfig, *LONG, "--no-leader-elect", *options) as extender:
                await extender.answers("/readyz", 200)
                assert (await extender.post("/filter", asked(made)))["NodeNames"] == []
                if options:
                    await eventually(lambda: api.requests.count(resource="pods/eviction") == 1)
                    await eventually(lambda: len(Kube(api).pods()) == 1)
                    assert (await extender.post("/bind", binding(Kube(api).pod("high")))) == {"Error": ""}
                assert api.requests.count(resource="pods/eviction") == len(options) // 4
                assert await extender.stop() == 0
        assert Kube(api).node_of("high") == "n1"
