"""`account`: what a pod holds, from its manifest alone.

It exists because the formula can be tried on a manifest without any cluster. It must not know nodes. Invariant: the
command trusts the allocation annotation, and without one everything comes from the spec.
"""

import json
from pathlib import Path

import yaml

from tests.extender.objects import (
    Json,
    asks,
    container,
    held,
    listed,
    phased,
    pod,
    rows,
    sidecar,
    status_of,
    terminated,
)
from tests.extender.processes import ROOT, run, run_fresh

KEYS = {"pod", "uid", "state", "containers", "peak", "steady", "held", "total"}
TOTAL_KEYS = {"peak", "steady", "uncertain"}
EVERY_INIT_OVER = status_of("Running", *(terminated(f"i{number}") for number in range(4)))


def account(*pods: Json) -> list[Json]:
    """Return the accounts of these pods; for one pod the command prints no list."""
    result = run("account", "-f", "-", "-o", "json", stdin=listed(*pods).encode())
    assert (result.status, result.err) == (0, "")
    answer = result.json()
    assert isinstance(answer, list) == (len(pods) > 1)
    return answer if isinstance(answer, list) else [answer]


def worked(name: str, *use: tuple[str, str, int]) -> Json:
    """A pod whose inits, sidecars and apps each hold memory on one card: (kind, card, MiB)."""
    of_kind = {"init": container, "sidecar": sidecar, "app": container}
    built = [of_kind[kind](f"i{position}", asks(1, memory)) for position, (kind, _, memory) in enumerate(use)]
    apps = [each for each, (kind, _, _) in zip(built, use, strict=True) if kind == "app"]
    inits = [each for each, (kind, _, _) in zip(built, use, strict=True) if kind != "app"]
    return pod(name, apps, inits=inits, node="n1", allocation=rows(*([(uuid, mib, 0)] for _, uuid, mib in use)))


def memory(uses: Json) -> dict[str, int]:
    return {uuid: use["memory"] for uuid, use in uses.items()}


def test_an_account_has_exactly_these_keys_and_numbers() -> None:
    (answer,) = account(phased(EVERY_INIT_OVER))
    assert answer.keys() == KEYS
    assert (answer["pod"], answer["uid"], answer["state"]) == ("default/p", "uid-p", "peak")
    assert answer["containers"] == [
        {"name": "side", "kind": "sidecar", "devices": [{"uuid": "GPU-n1-0", "memory": 2, "cores": 0}]},
        {"name": "init", "kind": "init", "devices": [{"uuid": "GPU-n1-0", "memory": 20, "cores": 0}]},
        {"name": "main", "kind": "app", "devices": [{"uuid": "GPU-n1-0", "memory": 10, "cores": 0}]},
    ]
    assert answer["peak"] == answer["held"] == {"GPU-n1-0": held(2, 22)}
    assert answer["steady"] == {"GPU-n1-0": held(2, 12)}
    assert answer["total"].keys() == TOTAL_KEYS
    assert answer["total"]["peak"] == {"count": 2, "memory": 22, "cores": 0}
    assert answer["total"]["steady"] == {"count": 2, "memory": 12, "cores": 0}
    assert answer["total"]["uncertain"] == []


def test_the_worked_examples_of_the_formula() -> None:
    examples = [
        (worked("a", ("sidecar", "X", 10), ("app", "X", 10)), {"X": 20}, {"X": 20}),
        (worked("b", ("sidecar", "X", 2), ("init", "X", 20), ("app", "X", 10)), {"X": 22}, {"X": 12}),
        (worked("c", ("init", "X", 20), ("sidecar", "X", 2), ("app", "X", 10)), {"X": 20}, {"X": 12}),
        (
            worked("d", ("sidecar", "X", 2), ("init", "X", 5), ("sidecar", "X", 3), ("init", "X", 7), ("app", "X", 4)),
            {"X": 12},
            {"X": 9},
        ),
        (worked("e", ("init", "X", 20), ("app", "Y", 10)), {"X": 20, "Y": 10}, {"Y": 10}),
    ]
    for answer, (_, peak, steady) in zip(account(*(each for each, _, _ in examples)), examples, strict=True):
        assert (memory(answer["peak"]), memory(answer["steady"])) == (peak, steady)


def test_state_names_what_is_held() -> None:
    over = worked("p", ("init", "X", 20), ("app", "X", 10))
    statuses = [
        status_of("Pending"),
        status_of("Running", terminated("i0")),
        status_of("Succeeded"),
        status_of("Failed"),
    ]
    answers = account(*(over | {"status": status} for status in statuses))
    assert [(each["state"], memory(each["held"])) for each in answers] == [
        ("peak", {"X": 20}),
        ("steady", {"X": 10}),
        ("released", {}),
        ("released", {}),
    ]
    assert all((memory(each["peak"]), memory(each["steady"])) == ({"X": 20}, {"X": 10}) for each in answers)


def test_without_an_annotation_the_totals_come_from_the_spec() -> None:
    apps = [
        container("two", asks(2, 100, 20)),
        container("half", asks(1, percentage=50)),
        container("whole", asks(1)),
        container("none"),
    ]
    answer, nothing = account(pod("p", apps, inits=[container("init", asks(5, 10))]), pod("q", [container("main")]))
    assert [(each["kind"], each["devices"]) for each in answer["containers"]] == [("init", []), *[("app", [])] * 4]
    assert (answer["peak"], answer["steady"], answer["held"]) == ({}, {}, {})
    assert answer["total"] == {
        "peak": {"count": 5, "memory": 200, "cores": 40},
        "steady": {"count": 4, "memory": 200, "cores": 40},
        "uncertain": ["percentage in container half", "whole card in container whole"],
    }
    assert nothing["total"]["peak"] == nothing["total"]["steady"] == {"count": 0, "memory": 0, "cores": 0}


def test_the_totals_of_an_allocation_come_from_its_rows() -> None:
    # The annotation differs from the spec: the command trusts it, also for a pod without a node.
    answer, empty = account(
        pod("p", [container("main", asks(1, 5))], allocation=rows([("X", 7, 3), ("Y", 8, 4)])),
        pod("q", [container("main", asks(1, 5))], allocation=";"),
    )
    assert answer["held"] == {"X": held(1, 7, 3), "Y": held(1, 8, 4)}
    assert answer["total"]["peak"] == {"count": 2, "memory": 15, "cores": 7}
    assert (empty["held"], empty["total"]["peak"]) == ({}, {"count": 0, "memory": 0, "cores": 0})


def test_a_memory_factor_is_applied_once() -> None:
    result = run("account", "--memory-factor", "10", "-f", "-", "-o", "json", stdin=json.dumps(pod(memory=7)).encode())
    assert result.json()["total"]["peak"] == {"count": 1, "memory": 70, "cores": 0}


def test_a_file_of_documents_means_the_same_as_a_list(tmp_path: Path) -> None:
    pods, path = [phased(), pod("q")], tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all([{"kind": "Service"}, *pods]), encoding="utf-8")
    result = run("account", "-f", path, "--output", "json")
    assert (result.status, result.err) == (0, "")
    assert result.json() == account(*pods)


def test_the_example_pods_are_accounted() -> None:
    paths = sorted((ROOT / "manifests" / "examples" / "pods").glob("*.yaml"))
    good = "\n---\n".join(path.read_text(encoding="utf-8") for path in paths if path.stem != "invalid")
    result = run("account", "-f", "-", "-o", "json", stdin=good.encode())
    assert (result.status, len(result.json())) == (0, len(paths) - 1)


def test_text_for_a_person_names_the_phases() -> None:
    result = run_fresh("account", "-f", "-", stdin=json.dumps(phased()).encode())
    assert result.status == 0
    text = result.out.decode()
    assert all(part in text for part in ("pod default/p", "state peak", "side", "sidecar", "GPU-n1-0", "22", "12"))
