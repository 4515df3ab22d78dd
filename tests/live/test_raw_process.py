"""`serve` with whole devices, budgets and usage records as a process of its own, and its journal replayed.

It exists because flags, files and the end of a process are an interface. It must not look into the process. Invariant:
its journal has what VMIs and budgets said, so a replay books and refuses the same binds.
"""

import json
from pathlib import Path

import pytest

from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.extender import processes
from tests.extender.objects import Json
from tests.extender.serving import asked
from tests.extender.vmis import K, raw_node, raw_pod, vmi
from tests.live.process_harness import LONG, Process, serving

pytestmark = pytest.mark.real_time


def binding(pod: Json) -> Json:
    meta = pod["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}


async def placed(extender: Process, pod: Json) -> str:
    """Filter and bind a pod; return the bind's Error."""
    await extender.post("/filter", asked(pod, "n1"))
    return str((await extender.post("/bind", binding(pod)))["Error"])


async def test_a_process_places_counts_keeps_records_and_replays(tmp_path: Path) -> None:
    budgets, journal, usage = tmp_path / "budgets.yaml", tmp_path / "journal", tmp_path / "usage"
    budgets.write_text(f"budgets: [{{namespace: default, hard: {{{K}: 3}}}}]")
    pods = [raw_pod("l", 2), raw_pod("p", 1), raw_pod("q", 1)]
    flags = ("--raw-key", K, "--raw-budgets", budgets, "--journal", journal, "--usage-file", usage)
    async with ApiServer() as api:
        api.serve("kubevirt.io/v1")
        api.load([raw_node(), vmi("a", ["uid-l"], units=2), *pods])
        kubeconfig = write_kubeconfig(tmp_path / "kc", api.url)
        async with serving(kubeconfig, *LONG, *flags) as extender:
            await extender.answers("/readyz", 200)
            # The launcher belongs to its VM; one more unit is within the budget, and another one is not.
            errors = [await placed(extender, each) for each in pods]
            assert [each.partition(":")[0] for each in errors] == ["", "", "QuotaExceeded"]
            status, text = await extender.get("/api/v1/options?namespace=default")
            assert (status, json.loads(text)["raw"]) == (
                200,
                [{"key": K, "nodes": 1, "free": 5, "largest": 5, "budget": {"hard": 3, "used": 3, "left": 0}}],
            )
            assert await extender.stop() == 0
    owners = [json.loads(line)[:3] for line in usage.read_text().splitlines()[1:-1]]
    assert sorted(owners) == [["pod", "default", "p"], ["vmi", "default", "a"]]
    replayed = processes.run("replay", "-o", "json", journal)
    summary = replayed.json()
    assert (replayed.status, summary["difference"], summary["bookings"], summary["refusals"]) == (0, None, 2, 1)
