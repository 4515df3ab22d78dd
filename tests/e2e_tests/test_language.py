"""Every scenario can be read; this needs no control plane."""

from pathlib import Path

import pytest

from tests.e2e.language import Misspelt, Scenario, names_of, node_of, pod_of, read_scenario, scenario_files
from tests.e2e.story import VERBS


def _read(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "1-x.yaml"
    path.write_text(text)
    return read_scenario(path, VERBS)


def test_every_file_can_be_read() -> None:
    read = [read_scenario(path, VERBS) for path in scenario_files()]
    assert {1, 3} <= {scenario.number for scenario in read}
    assert all(scenario.steps for scenario in read)


@pytest.mark.parametrize(
    "text, word",
    [
        ("{title: t, nodes: {}, steps: [}", r"1-x\.yaml: .*line 1"),
        ("{title: t, nodes: {}, steps: [{plaecd: a}]}", "plaecd"),
        ("{title: t, nodes: {}, steps: [], stpes: []}", "stpes"),
        ("{title: t, nodes: {n1: 2 crads of 4}, steps: []}", "2 crads of 4"),
        ("{title: t, nodes: {}, steps: [{create: {a: inti 3}}]}", "inti 3"),
        ("{title: t, nodes: {}, steps: [{create: {a: 'app 3, init 3'}}]}", "init 3"),
        ("{title: t, nodes: {}, steps: [{create: {a: {containers: app 3, nod: n1}}}]}", "nod"),
    ],
)
def test_what_is_misspelt_is_named(tmp_path: Path, text: str, word: str) -> None:
    with pytest.raises(Misspelt, match=f"(?s){word}"):
        _read(tmp_path, text)


def test_containers_keep_their_order_and_their_kind() -> None:
    spec = pod_of("a", "sidecar 2, init 20 x2, app 10% cores 30, app nothing", "default")["spec"]
    assert [(one["name"], one.get("restartPolicy")) for one in spec["initContainers"]] == [
        ("sidecar1", "Always"),
        ("init1", None),
    ]
    assert spec["initContainers"][1]["resources"]["limits"] == {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "20"}
    assert [one["resources"]["limits"] for one in spec["containers"]] == [
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "10", "nvidia.com/gpucores": "30"},
        {},
    ]


def test_a_node_offers_the_sum_of_its_slots() -> None:
    assert node_of("n1", "2 cards of 24 slots 4")["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node_of("n1", "2 cards of 24 count 3")["status"]["allocatable"]["nvidia.com/gpu"] == "3"
    assert list(names_of("n[1-3]")) == ["n1", "n2", "n3"]
