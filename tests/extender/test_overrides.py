"""If an annotation that overrides a setting cannot be used, the setting holds, and the user is told.

It exists because a word in the wrong case must not replace the operator's choice with another one. It must not test
what the policies do. Invariant: OVERRIDES lists every annotation that overrides a setting.
"""

import json
from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

from accounting.policy import Policies, make_policies
from extender.config import Settings
from extender.convert import CARD_POLICY, NODE_POLICY, WEIGHTS, convert_pod
from extender.wire import core_v1
from tests.admission.reviews import admitting
from tests.extender.inside import run_inside
from tests.extender.objects import asks, container, listed, node, pod

#: Annotation -> the field of `Policies` that it overrides, and values that name no policy. Weights have no flag, so no
#: setting can replace bad ones: they are InvalidRequest.
OVERRIDES = {
    CARD_POLICY: ("card", ["Binpack", "pack", "binpack,Spread", "BINPACK", ""]),
    NODE_POLICY: ("node", ["Spread", "binpack,spread", "fullest", " ", ""]),
}
VALUES = [pytest.param(key, value, id=f"{key}: {value!r}") for key, (_, bad) in OVERRIDES.items() for value in bad]
SETTINGS = [make_policies("spread", "binpack"), make_policies("binpack", "mutex"), make_policies("fgd", None)]


def policies_of(annotations: dict[str, str], setting: Policies) -> Policies:
    wire = msgspec.convert(pod("p", annotations=annotations), core_v1.Pod)
    return convert_pod(wire, Settings(policies=setting)).policies


def test_the_list_is_complete() -> None:
    assert {WEIGHTS, *OVERRIDES} == {CARD_POLICY, NODE_POLICY, WEIGHTS}
    assert {name for name, _ in OVERRIDES.values()} | {"weights"} == {each.name for each in fields(Policies)}


@pytest.mark.parametrize("key, value", VALUES)
@pytest.mark.parametrize("setting", SETTINGS, ids=["spread, binpack", "binpack, mutex", "fgd"])
def test_the_setting_holds(key: str, value: str, setting: Policies) -> None:
    assert policies_of({key: value}, setting) == setting


def test_an_override_that_can_be_used_is_used() -> None:
    assert policies_of({CARD_POLICY: " spread "}, SETTINGS[0]) == make_policies("spread", "spread")
    assert policies_of({NODE_POLICY: "binpack"}, SETTINGS[0]) == make_policies("binpack", "binpack")


@pytest.mark.parametrize("key, value", VALUES)
def test_explain_names_what_is_ignored(key: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(pod("p", annotations={key: value})))
    (tmp_path / "c.json").write_text(listed(node("n1")))
    result = run_inside("explain", "-f", tmp_path / "p.json", "--cluster", tmp_path / "c.json", "-o", "json")
    assert result.status == 0
    (said,) = result.json()["ignored"]
    assert said.startswith(f"metadata.annotations[{key}]: ")
    assert said.endswith("is no policy and is ignored")


async def test_validate_warns() -> None:
    notes = {CARD_POLICY: "Binpack", NODE_POLICY: "Spread"}
    written = pod("p", [container("main", asks(1, 5))], annotations=notes)
    written["spec"]["schedulerName"] = "gpu-scheduler"
    async with admitting(node("n1")) as webhooks:
        answer = await webhooks.validate(written)
    assert (answer.allowed, answer.warnings) == (
        True,
        [
            f"metadata.annotations[{NODE_POLICY}]: Spread: is no policy and is ignored",
            f"metadata.annotations[{CARD_POLICY}]: Binpack: is no policy and is ignored",
        ],
    )


@pytest.mark.parametrize(
    "key",
    [
        CARD_POLICY,
        "nvidia.com/use-gpuuuid",
        "nvidia.com/nouse-gpuuuid",
        "nvidia.com/use-gputype",
        "nvidia.com/nouse-gputype",
    ],
)
@pytest.mark.parametrize("value", [",", " , ,"])
def test_a_list_without_entries_is_an_invalid_request(key: str, value: str) -> None:
    wire = msgspec.convert(pod("p", annotations={key: value}), core_v1.Pod)
    (invalid,) = convert_pod(wire, Settings()).invalid
    assert str(invalid) == f"metadata.annotations[{key}]: {value}: is a list without entries"


@pytest.mark.parametrize("value", ["", " "])
def test_a_blank_selection_is_none(value: str) -> None:
    wire = msgspec.convert(pod("p", annotations={"nvidia.com/use-gpuuuid": value}), core_v1.Pod)
    assert convert_pod(wire, Settings()).invalid == ()
