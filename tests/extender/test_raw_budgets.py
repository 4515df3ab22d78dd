"""The file of --raw-budgets and the flags of whole devices: what is accepted, and what is refused with field and value.

It exists because a budget that is misread limits nothing. It must not judge pods. Invariant: a file is accepted whole
or not at all.
"""

from pathlib import Path

import pytest

from extender.cli import main
from extender.commands.raw_budgets import RawBudgetFile
from extender.convert import InputError, read_raw_budgets
from tests.extender.inside import refusal_inside, run_inside
from tests.extender.objects import listed
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.vmis import K, raw_node, raw_pod, vmi

GOOD = f'budgets:\n- namespace: team\n  hard: {{{K}: 4}}\n- namespace: "*"\n  hard: {{{K}: "1"}}\n'


def test_a_file_and_a_config_map_say_the_same() -> None:
    config_map = "kind: ConfigMap\nmetadata: {name: b}\ndata:\n  any.yaml: |\n    " + GOOD.replace("\n", "\n    ")
    expected = {("team", K): 4, ("*", K): 1}
    assert read_raw_budgets(GOOD, (K,), "f") == expected
    assert read_raw_budgets(config_map, (K,), "f") == expected
    assert read_raw_budgets("budgets: []", (K,), "f") == {}


@pytest.mark.parametrize(
    "text, why",
    [
        pytest.param("", "f: (file): Expected `object`", id="empty"),
        pytest.param("budgets: [", "f: (file): is no YAML", id="no-yaml"),
        pytest.param("limits: []", "f: (file): Object", id="unknown-field"),
        pytest.param("budgets: [{hard: {}}]", "missing required field `namespace`", id="no-namespace"),
        pytest.param("budgets: [{namespace: Team, hard: {}}]", "f: budgets[0].namespace: Team: must be", id="illegal"),
        pytest.param("budgets: [{namespace: a, hard: {x/y: 1}}]", "f: budgets[0].hard: x/y: is no raw key", id="key"),
        pytest.param(f"budgets: [{{namespace: a, hard: {{{K}: 1.5}}}}]", f"hard[{K}]: 1.5: must be a whole", id="half"),
        pytest.param(f"budgets: [{{namespace: a, hard: {{{K}: -1}}}}]", f"hard[{K}]: -1: must be a whole", id="minus"),
        pytest.param(f"budgets: [{{namespace: a, hard: {{{K}: yes}}}}]", f"hard[{K}]: True: must be", id="bool"),
        pytest.param(f"budgets: [{{namespace: a, hard: {{{K}: null}}}}]", f"hard[{K}]: None: must be", id="null"),
        pytest.param(
            f"budgets: [{{namespace: a, hard: {{{K}: 1}}}}, {{namespace: a, hard: {{{K}: 2}}}}]",
            f"f: budgets[1].hard[{K}]: 2: namespace a has one already",
            id="twice",
        ),
        pytest.param("kind: ConfigMap\ndata: {}", "f: data: (empty)", id="empty-config-map"),
        pytest.param("kind: ConfigMap\ndata: {a: 'x: 1'}", "f: data[a]: (file)", id="bad-config-map"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        read_raw_budgets(text, (K,), "f")
    assert why in str(refused.value)


def test_a_changed_file_is_read_again_and_a_broken_one_leaves_what_was(tmp_path: Path) -> None:
    file, cluster = tmp_path / "budgets", make_raw_cluster()
    file.write_text(GOOD)
    followed = RawBudgetFile(str(file), cluster)
    assert cluster.raw.hard("team", K) == 4
    file.write_text(GOOD.replace(": 4", ": 6"))
    followed.look()
    assert cluster.raw.hard("team", K) == 6
    file.write_text("budgets: nothing")
    followed.look()
    file.unlink()
    followed.look()
    assert cluster.raw.hard("team", K) == 6
    file.write_text("budgets: []")
    followed.look()
    assert cluster.raw.hard("team", K) is None


@pytest.mark.parametrize(
    "flags, why",
    [
        (("--raw-key", "nvidia.com/gpu"), "--raw-key: nvidia.com/gpu: is a resource of shares of cards already"),
        (("--raw-budgets", "nowhere"), "--raw-budgets: nowhere: needs --raw-key"),
        (("--raw-key", K, "--raw-budgets", "/nowhere"), "--raw-budgets: /nowhere: No such file"),
    ],
)
def test_flags_that_cannot_be_used_are_refused(flags: tuple[str, ...], why: str, tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(listed(raw_node()))
    assert why in refusal_inside("verify", "--cluster", dump, *flags)


@pytest.mark.parametrize("name", ["gpu", "Nvidia.com/A100", "nvidia.com/A'100", "nvidia.com/", "/a", "a/b/c"])
def test_a_name_that_is_no_extended_resource_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", "--cluster", "dump.json", "--raw-key", name])
    assert ended.value.code == 2
    assert f"{name}: must be an extended resource" in capsys.readouterr().err


def test_verify_and_explain_of_a_dump_know_vms_and_budgets(tmp_path: Path) -> None:
    dump, budgets, asking = tmp_path / "dump.json", tmp_path / "budgets", tmp_path / "pod.json"
    objects = (raw_node(units=2), vmi("a", units=2), raw_pod("s", 1, node="n1"), vmi("b", key="nvidia.com/OTHER"))
    dump.write_text(listed(*objects))
    budgets.write_text(f"budgets: [{{namespace: default, hard: {{{K}: 3}}}}]")
    asking.write_text(listed(raw_pod("p", 1)))
    verified = run_inside("verify", "--cluster", dump, "--raw-key", K, "--problems", "-o", "json")
    assert [(each["code"], each["object"], each["message"]) for each in verified.json()["problems"]] == [
        ("RawOvercommitted", f"node n1 key {K}", "3 are used of 2: pod default/s 1, vmi default/a 2"),
        ("UnknownRawKey", "vmi default/b", "names GPUs that no --raw-key counts: nvidia.com/OTHER"),
    ]
    flags = ("-f", asking, "--cluster", dump, "--raw-key", K, "-o", "json")
    (full,) = run_inside("explain", *flags).json()["nodes"]
    assert full["reasons"] == [
        {
            "code": "InsufficientNodeCount",
            "message": f"{K}: the pod adds 1; the node has 2, 3 are used",
            "devices": [],
        }
    ]
    (over,) = run_inside("explain", *flags, "--raw-budgets", budgets).json()["nodes"]
    numbers = "hard 3, used 3, the pod adds 1"
    assert [each["message"] for each in over["reasons"]] == [f"exceeded budget default: {K}: {numbers}"]


def test_the_stanza_names_whole_devices() -> None:
    text = run_inside("scheduler-config", "--raw-key", K).out.decode()
    assert f"  - name: {K}\n    ignoredByScheduler: false\n" in text
