"""The options and objects of holds, with wrong input too.

They exist because the fields of a foreign resource are given by hand. They must not run a server. Invariant: what is
wrong is named by option or field, with its value.
"""

from pathlib import Path
from typing import Any

import pytest

from accounting.holders import HoldState
from extender.cli import main
from extender.config import HoldSource, Settings
from extender.convert import InputError, convert_hold, place_of
from tests.extender.objects import Json

K = "example.com/whole"
EXAMPLE = str(Path(__file__).parents[2] / "manifests" / "examples" / "cluster.yaml")
SOURCE = HoldSource("gpu-extender.io", "v1alpha1", "holds")
SETTINGS = Settings(raw_keys=(K,))


def told(*, spec: Json | None = None, **status: Any) -> Json:  # noqa: ANN401 - also what is no text
    fields = {"virtualMachineInstance": "vm", "resourceName": K, "units": 2} | (spec or {})
    return {"metadata": {"name": "h", "namespace": "x"}, "spec": fields, "status": status}


@pytest.mark.parametrize(
    "options, message",
    [
        (["--hold-sets"], "--hold-sets: true: needs --raw-key"),
        (["--hold-resource", "a.v1.b.io"], "--hold-resource: a.v1.b.io: needs --raw-key"),
        (["--hold-field", "vmi=spec.a"], "--hold-field: vmi=spec.a: needs --hold-resource"),
        (
            ["--raw-key", K, "--hold-resource", "a.v1.b.io", "--hold-field", "node=spec.node"],
            "--hold-field: node=spec.node: must be in the status exactly if the state is",
        ),
        (
            ["--raw-key", K, "--hold-resource", "a.v1.b.io", "--hold-field", "node=status.state"],
            "--hold-field: status.state: two fields cannot be at one place",
        ),
        (["--hold-resource", "holds"], "must be PLURAL.VERSION.GROUP"),
        (["--hold-field", "color=spec.a"], "the field one of vmi, key, units, node, state"),
        (["--hold-field", "vmi=metadata.name"], "is no path such as spec.vmName"),
        (["--hold-field", "vmi=spec..a"], "is no path such as spec.vmName"),
    ],
)
def test_a_wrong_option_is_named(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["verify", "--cluster", EXAMPLE, *options]))
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out) == (2, "")
    assert message in shown.err


@pytest.mark.parametrize(
    "given, field",
    [
        (told(spec={"virtualMachineInstance": ""}), "spec.virtualMachineInstance: (empty)"),
        (told(spec={"virtualMachineInstance": "../x"}), "spec.virtualMachineInstance: ../x"),
        (told(spec={"virtualMachineInstance": 3}), "spec.virtualMachineInstance: 3"),
        (told(spec={"resourceName": "other"}), "spec.resourceName: other"),
        (told(spec={"units": 0}), "spec.units: 0"),
        (told(spec={"units": "1.5"}), "spec.units: 1.5"),
        (told(spec={"units": True}), "spec.units: True"),
        (told(spec={"units": 10**9}), "spec.units: 1000000000"),
        (told(state="Somewhere"), "status.state: Somewhere"),
        (told() | {"status": "none"}, "status.node: none"),
    ],
)
def test_an_object_that_cannot_be_used_names_the_field_and_the_value(given: Json, field: str) -> None:
    with pytest.raises(InputError) as error:
        convert_hold(given, SOURCE, SETTINGS)
    assert str(error.value).startswith(field)


@pytest.mark.parametrize(
    "status, node, state",
    [
        ({}, None, HoldState.PENDING),
        ({"node": "n1"}, "n1", HoldState.BOUND),
        ({"state": "Bound"}, None, HoldState.PENDING),
        ({"state": "Bound", "node": "n1"}, "n1", HoldState.BOUND),
        ({"state": "Lost", "node": "n1"}, None, HoldState.LOST),
        ({"state": "Pending", "node": None}, None, HoldState.PENDING),
    ],
)
def test_a_hold_has_a_node_exactly_while_it_is_bound(status: Json, node: str | None, state: HoldState) -> None:
    hold = convert_hold(told(**status), SOURCE, SETTINGS)
    assert (hold.node, hold.state, hold.units, hold.vmi, hold.name) == (node, state, 2, ("x", "vm"), "h")


def test_what_is_written_is_read_again_as_it_was_at_any_paths() -> None:
    source = HoldSource(
        "b.io", "v1", "devices", "spec.vm.name", "spec.model", "spec.n", "spec.place.host", "spec.phase"
    )
    tree = {"metadata": {"name": "h"}, "spec": {"vm": {"name": "vm"}, "model": K}}
    hold = convert_hold(tree, source, SETTINGS).on("n7")
    patch = place_of(hold, source)
    assert patch == {"spec": {"place": {"host": "n7"}, "phase": "Bound"}}
    assert not source.writes_status
    assert convert_hold({**tree, "spec": tree["spec"] | patch["spec"]}, source, SETTINGS) == hold
