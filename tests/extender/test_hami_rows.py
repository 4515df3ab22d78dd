"""Every command and the watch read HAMi's pods whose annotations lack rows by the same rules.

The ids name the rule that decides (docs/hami.md). It must not repeat the rules' edge cases, which are in
tests/accounting/test_row_order.py.
"""

import json
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from extender.cluster import Cluster
from extender.config import Settings
from extender.kube.reflector import Change
from extender.live.watching import PodInformer, PodSink
from tests.extender.inside import run_inside
from tests.extender.objects import (
    Json,
    Row,
    asks,
    card,
    container,
    held,
    listed,
    node,
    pod,
    rows,
    sidecar,
    status_of,
    terminated,
)

SHARE = 2500, 25
NODE = node("n1", [card("G1", 0, memory=16384), card("G2", 1, memory=16384)])


def app(name: str) -> Json:
    return container(name, asks(1, *SHARE))


class Written(NamedTuple):
    """A pod's containers, and the rows that were written for them."""

    apps: list[Json]
    inits: list[Json]
    text: list[list[Row]]

    def manifest(self, *, over: bool = False) -> Json:
        ordinary = [each["name"] for each in self.inits if "restartPolicy" not in each]
        ended = [terminated(name, started=None, finished=None) for name in ordinary]
        status = status_of("Running", *ended) if over else status_of("Pending")
        return pod("p", self.apps, inits=self.inits, node="n1", allocation=rows(*self.text), status=status)


PLAIN = container("plain")
BESIDE_A_PLAIN_INIT = Written([app("a"), app("b")], [PLAIN], [[("G1", *SHARE)], [("G2", *SHARE)]])
TWO_INITS = Written([app("main")], [PLAIN, container("init", asks(1, 6000))], [[("G1", 6000, 0)], [("G1", *SHARE)]])
ISTIO = Written([app("main")], [container("istio-init"), sidecar("istio-proxy")], [[("G1", *SHARE)]])
APPS_ONLY = Written([app("a"), container("b")], [container("init", asks(1, 6000))], [[("G1", *SHARE)], []])
EVERY_ROW = TWO_INITS._replace(text=[[], *TWO_INITS.text])
THREE_OF_FIVE = Written(
    [app("main"), container("b")],
    [PLAIN, container("init", asks(1, 6000)), sidecar("side")],
    [[("G1", 6000, 0)], [("G1", *SHARE)], [("G2", *SHARE)]],
)
KINDS = [
    pytest.param(BESIDE_A_PLAIN_INIT, {"G1": held(1, *SHARE), "G2": held(1, *SHARE)}, None, id="rule 2: plain init"),
    pytest.param(TWO_INITS, {"G1": held(1, 6000, 25)}, {"G1": held(1, *SHARE)}, id="rule 2: two inits, one asks"),
    pytest.param(ISTIO, {"G1": held(1, *SHARE)}, None, id="rule 2: istio's init and sidecar"),
    pytest.param(APPS_ONLY, {"G1": held(1, *SHARE)}, None, id="rule 3: apps only"),
    pytest.param(EVERY_ROW, {"G1": held(1, 6000, 25)}, {"G1": held(1, *SHARE)}, id="rule 1: every row"),
    pytest.param(THREE_OF_FIVE, {"G1": held(2, 8500, 25), "G2": held(1, *SHARE)}, None, id="rule 4: 3 rows of 5"),
]


def problem_codes(entries: list[Json]) -> list[str]:
    return [each["code"] for each in entries]


@pytest.mark.parametrize("kind, peak, steady", KINDS)
def test_account_verify_explain_and_the_watch_read_alike(
    kind: Written, peak: Json, steady: Json | None, tmp_path: Path
) -> None:
    ambiguous = ["AmbiguousAllocation"] if kind is THREE_OF_FIVE else []
    for over, expected in ((False, peak), (True, steady or peak)):
        manifest = kind.manifest(over=over)
        account = run_inside("account", "-f", "-", "-o", "json", stdin=json.dumps(manifest).encode())
        assert account.status == 0
        assert account.json()["held"] == expected
        assert (account.json()["peak"], account.json()["steady"]) == (peak, steady or peak)
        assert problem_codes([account.json()["problem"]] if "problem" in account.json() else []) == ambiguous

        cluster = tmp_path / f"{over}.json"
        cluster.write_text(listed(NODE, manifest), encoding="utf-8")
        verify = run_inside("verify", "--cluster", cluster, "-o", "json")
        assert problem_codes(verify.json()["problems"]) == ambiguous
        assert {each["uuid"]: each["requested"] for each in verify.json()["devices"] if each["pods"]} == expected
        assert not any(each["blocked"] for each in verify.json()["devices"])

        asked = pod("q", [container("main", asks(2, 10_000 if kind is not THREE_OF_FIVE else 7_000, 50))])
        explain = run_inside("explain", "-f", "-", "--cluster", cluster, "-o", "json", stdin=json.dumps(asked).encode())
        assert explain.json()["nodes"][0]["fits"]

        watched = _watched(manifest)
        record = watched.cache.pods["uid-p"]
        assert {use.uuid: held(use.slots, use.memory, use.cores) for use in record.held} == expected
        assert problem_codes([{"code": each.code} for each in watched.cache.pod_problems]) == ambiguous
        assert record.blocks is None


def _watched(manifest: Json) -> Cluster:
    cluster = Cluster(Settings())
    sink = PodSink(cluster, PodInformer(cluster))
    sink.change(Change.PUT, msgspec.Raw(json.dumps(manifest).encode()))
    return cluster


def test_rows_of_the_pod_as_a_whole_are_shown_beside_the_containers() -> None:
    manifest = json.dumps(THREE_OF_FIVE.manifest()).encode()
    answer = run_inside("account", "-f", "-", "-o", "json", stdin=manifest).json()
    assert [each["name"] for each in answer["containers"]] == ["plain", "init", "side", "main", "b"]
    assert not any(each["devices"] for each in answer["containers"])
    assert answer["devices"] == [
        {"uuid": "G1", "memory": 6000, "cores": 0},
        {"uuid": "G1", "memory": 2500, "cores": 25},
        {"uuid": "G2", "memory": 2500, "cores": 25},
    ]
    shown = run_inside("account", "-f", "-", stdin=manifest).out
    assert b"held by the pod as a whole: G2 2500 MiB 25 %" in shown
    assert b"AmbiguousAllocation: has an allocation of which nobody can tell" in shown


def test_only_rows_that_cannot_be_read_block(tmp_path: Path) -> None:
    broken = pod("p", [app("main")], inits=[PLAIN], node="n1", allocation="G1,NVIDIA,x,25:;")
    path = tmp_path / "cluster.json"
    path.write_text(listed(NODE, broken), encoding="utf-8")
    verify = run_inside("verify", "--cluster", path, "-o", "json").json()
    assert problem_codes(verify["problems"]) == ["UndecodableAllocation"]
    assert [each["blocked"] for each in verify["devices"]] == [["UndecodableAllocation"], []]


def test_instances_of_rows_that_were_left_out_are_numbered_as_written() -> None:
    """HAMi v2.10 numbers the rows that it writes, so the first one is row 0, whichever container it belongs to."""
    places = [
        {
            "containerIndex": 0,
            "deviceIndex": 0,
            "gpuUUID": "G1",
            "profile": "2g.10gb",
            "placement": {"start": 0, "size": 2},
        }
    ]
    manifest = pod(
        "p",
        [app("main")],
        inits=[PLAIN],
        node="n1",
        allocation=rows([("G1", 9984, 29)]),
        annotations={"hami.io/vgpu-mig-allocations": json.dumps(places)},
    )
    answer = run_inside("account", "-f", "-", "-o", "json", stdin=json.dumps(manifest).encode()).json()
    assert answer["containers"][1]["devices"][0]["instance"] == {"profile": "2g.10gb", "start": 0, "size": 2}
