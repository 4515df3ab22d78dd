"""Manifests as people and tools write them: wrappings, YAML's oddities, and texts that are no manifests.

They exist because a dump may come from kubectl, from the API or from an editor. They must not know what an object
means. Invariant: the same objects come out of every wrapping, and what is no manifest is an error that names the file.
"""

import json
from typing import Any

import pytest
import yaml

from extender.convert.manifests import InputError, Manifest, parse_manifests
from extender.wire import core_v1
from tests.extender.nesting import NESTED, SAID
from tests.extender.objects import Json, node, phased, pod, terminated

OBJECTS = [node("n1", 2), phased(), pod("q", uid=None)]


def parse(text: str | bytes) -> list[Manifest]:
    return list(parse_manifests(text.encode() if isinstance(text, str) else text, "-f", "file.yaml"))


def decoded(text: str | bytes) -> list[Any]:
    """Return the objects of a text, each as its wire type."""
    types: dict[str, Any] = {"Pod": core_v1.Pod, "Node": core_v1.Node}
    return [manifest.decode(types[manifest.kind]) for manifest in parse(text) if manifest.kind in types]


def without_kind(value: Json) -> Json:
    return {key: each for key, each in value.items() if key not in ("apiVersion", "kind")}


WRAPPINGS: dict[str, str | bytes] = {
    "a JSON list": json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}),
    "an indented JSON list": "\n" + json.dumps({"items": OBJECTS, "kind": "List"}, indent=4),
    "a list in a list": json.dumps({"kind": "List", "items": [{"kind": "List", "items": OBJECTS}]}),
    "typed lists without kinds": json.dumps(
        {
            "kind": "List",
            "items": [
                {"kind": "NodeList", "items": [without_kind(OBJECTS[0])]},
                {"kind": "PodList", "items": list(map(without_kind, OBJECTS[1:]))},
            ],
        }
    ),
    "JSON one after the other": "".join(map(json.dumps, OBJECTS)),
    "JSON lines": "\n".join(map(json.dumps, OBJECTS)) + "\n",
    "JSON documents": "\n---\n".join(json.dumps(each, indent=2) for each in OBJECTS) + "\n---\n",
    "YAML documents": yaml.safe_dump_all(OBJECTS),
    "YAML documents and empty ones": "---\n---\n" + "\n---\n# nothing\n---\n".join(map(yaml.safe_dump, OBJECTS)),
    "a YAML list": yaml.safe_dump({"kind": "List", "items": OBJECTS}),
    "typed YAML lists": "---\n".join(
        [
            yaml.safe_dump({"kind": "NodeList", "items": [without_kind(OBJECTS[0])]}),
            yaml.safe_dump({"kind": "PodList", "items": list(map(without_kind, OBJECTS[1:]))}),
        ]
    ),
    "YAML in flow style": "---\n".join(yaml.safe_dump(each, default_flow_style=True, width=10_000) for each in OBJECTS),
    "JSON after YAML's mark": "---\n" + "\n---\n".join(map(json.dumps, OBJECTS)),
    "among other kinds": json.dumps(
        {"kind": "List", "items": [{"kind": "Secret", "metadata": 7, "items": {}}, *OBJECTS, {"kind": "EventList"}]}
    ),
    "with a byte order mark": b"\xef\xbb\xbf" + yaml.safe_dump_all(OBJECTS).encode(),
    "with Windows line ends": yaml.safe_dump_all(OBJECTS).replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", WRAPPINGS.values(), ids=WRAPPINGS.keys())
def test_every_wrapping_holds_the_same_objects(text: str | bytes) -> None:
    assert decoded(text) == decoded("---\n" + "\n---\n".join(map(json.dumps, OBJECTS)))
    assert [manifest.where for manifest in parse(text) if manifest.kind in ("Pod", "Node")] == [
        "node n1",
        "pod default/p",
        "pod default/q",
    ]


@pytest.mark.parametrize("text", ['{"kind": "List", "items": []}', '{"kind": "PodList", "items": null}', "kind: List"])
def test_a_list_of_nothing_is_a_manifest(text: str) -> None:
    assert decoded(text) == []


NO_MANIFESTS: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "-f: file.yaml: holds no object"),
    "only a comment": ("# nothing\n", "-f: file.yaml: holds no object"),
    "only marks": ("---\n---\n", "-f: file.yaml: holds no object"),
    "a text": ("hello", "-f: file.yaml: holds str, not a Kubernetes object"),
    "a list": ("[]", "-f: file.yaml: holds list, not a Kubernetes object"),
    "no kind": ("metadata: {name: p}", "kind: file.yaml: an object has no kind"),
    "no kind in JSON": ('{"metadata": {"name": "p"}}', "kind: file.yaml: an object has no kind"),
    "a kind that is a number": ("kind: 7", "kind: file.yaml: an object has no kind"),
    "a null in a list": ('{"kind": "List", "items": [null]}', "-f: file.yaml: "),
    "an object without a kind in a list": ('{"kind": "List", "items": [{}]}', "kind: file.yaml: an object has no kind"),
    "no YAML": ("kind: [Pod", "-f: file.yaml: not YAML: "),
    "truncated JSON": ('{"kind": "Pod",', "-f: file.yaml: not JSON: "),
    "text after JSON": ('{"kind": "Pod"} and more', "-f: file.yaml: not JSON: "),
    "binary": (bytes(range(256)), "-f: file.yaml: not YAML: "),
    "compressed": (b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "-f: file.yaml: not YAML: "),
    "Latin-1": ("kind: Pod\nmetadata: {name: é}".encode("latin-1"), "-f: file.yaml: not YAML: "),
    "a Python object": ("!!python/object/apply:os.system [ls]", "-f: file.yaml: not YAML: "),
    "JSON nested too deeply": (b'{"kind": "Pod", "x": %b}' % NESTED, f"-f: file.yaml: {SAID}"),
    "YAML nested too deeply": ("kind: Pod\nx: %s" % ("[" * 5000), "-f: file.yaml: not YAML: "),
    "a YAML number of 5000 digits": (f"kind: Pod\nx: 1{'0' * 5000}", "-f: file.yaml: not YAML: "),
}


#: What is skipped where a mistake is found is read to show the mistake's value.
MISTAKES_BESIDE_OTHERS: dict[str, tuple[bytes, str]] = {
    "text that is not UTF-8": (b'{"kind": "Pod", "spec": 5, "x": "\xff"}', "pod (no name): Pod: "),
    "half of a surrogate pair": (b'{"kind": "Pod", "spec": 5, "x": "\\ud800"}', "spec: 5: pod (no name): "),
    "a key that is written twice": (
        b'{"kind": "Pod", "spec": {"containers": [{"name": 1}]}, "spec": null}',
        "spec.containers: (a key is written twice): pod (no name): ",
    ),
    "labels that are written twice": (
        b'{"kind": "Pod", "metadata": {"name": "p", "labels": {"a": 1}, "labels": {}}}',
        "metadata.labels: {}: pod p: ",
    ),
    "labels that are no map the second time": (
        b'{"kind": "Pod", "metadata": {"name": "p", "labels": {"a": 1}, "labels": []}}',
        "metadata.labels[...]: (a key is written twice): pod p: ",
    ),
}


@pytest.mark.parametrize("text, said", MISTAKES_BESIDE_OTHERS.values(), ids=MISTAKES_BESIDE_OTHERS.keys())
def test_a_mistake_beside_others_is_named_in_one_line(text: bytes, said: str) -> None:
    with pytest.raises(InputError) as raised:
        parse(text)[0].decode(core_v1.Pod)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize("text, said", NO_MANIFESTS.values(), ids=NO_MANIFESTS.keys())
def test_what_is_no_manifest_is_named_in_one_line(text: str | bytes, said: str) -> None:
    with pytest.raises(InputError) as raised:
        parse(text)
    assert str(raised.value).startswith(said)
    assert "\n" not in str(raised.value)


WRONG_TYPES: dict[str, tuple[Json, str]] = {
    "a list of containers": ({"spec": {"containers": "x"}}, 'spec.containers: "x": pod p: '),
    "the second container": ({"spec": {"containers": [{}, 5]}}, "spec.containers[1]: 5: pod p: "),
    "a name": ({"metadata": {"name": 5, "namespace": "a"}}, "metadata.name: 5: pod a/(no name): "),
    "an annotation": (
        {"metadata": {"name": "p", "annotations": {"good": "x", "bad": [1]}}},
        "metadata.annotations[bad]: [1]: pod p: ",
    ),
    "a status": ({"status": "Running"}, 'status: "Running": pod p: '),
    "a long value": ({"status": "x" * 500}, 'status: "' + "x" * 116 + "...: pod p: "),
    "a time": (
        {"status": {"initContainerStatuses": [{"state": {"terminated": {"startedAt": 1.5}}}]}},
        "status.initContainerStatuses[0].state.terminated.startedAt: 1.5: pod p: ",
    ),
}


@pytest.mark.parametrize("changed, said", WRONG_TYPES.values(), ids=WRONG_TYPES.keys())
@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["in JSON", "in YAML"])
def test_a_wrong_type_is_named_with_its_field_and_value(write: Any, changed: Json, said: str) -> None:  # noqa: ANN401
    (manifest,) = parse(write({"kind": "Pod", "metadata": {"name": "p"}} | changed))
    with pytest.raises(InputError) as raised:
        manifest.decode(core_v1.Pod)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    "written, read",
    [
        ("2026-11-29T10:00:00Z", "2026-11-29T10:00:00+00:00"),
        ("2026-11-29T10:00:00", "2026-11-29T10:00:00Z"),
        ("2026-11-29 10:00:00", "2026-11-29T10:00:00Z"),
        ("2026-11-29T10:00:00.25Z", "2026-11-29T10:00:00.250000+00:00"),
        ("2026-11-29T10:00:00+05:30", "2026-11-29T10:00:00+05:30"),
        ("2026-11-29T10:00:00-05:00", "2026-11-29T10:00:00-05:00"),
        ("2026-11-29", "2026-11-29"),
        ("'2026-11-29T10:00:00Z'", "2026-11-29T10:00:00Z"),
    ],
)
def test_dates_that_yaml_reads_become_text_again(written: str, read: str) -> None:
    (manifest,) = parse(f"kind: Pod\nmetadata: {{name: p, deletionTimestamp: {written}}}")
    assert manifest.decode(core_v1.Pod) == core_v1.Pod(core_v1.ObjectMeta("p", deletionTimestamp=read))


def test_times_in_lists_become_text_as_well() -> None:
    status = {"initContainerStatuses": [terminated("i")]}
    text = yaml.safe_dump({"kind": "Pod", "status": status}).replace("'", "")
    assert "startedAt: 2026-11-29T10:00:00Z" in text
    (read,) = decoded(text)
    (status_read,) = read.status.initContainerStatuses
    assert status_read.state == core_v1.ContainerState(
        core_v1.Terminated(0, "2026-11-29T10:00:00+00:00", "2026-11-29T10:05:00+00:00")
    )


def test_anchors_are_followed_once_however_often_they_are_named() -> None:
    # Each line names the one before ten times: written out, this would be 10^12 entries.
    lines = ["l0: &l0 [x]"] + [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 13)]
    (manifest,) = parse("\n".join(["kind: Pod", "metadata: {name: p}", "loop: &loop [*loop]", *lines]))
    assert manifest.decode(core_v1.Pod) == core_v1.Pod(core_v1.ObjectMeta("p"))


def test_shared_parts_of_a_manifest_are_read_everywhere() -> None:
    text = """
kind: Pod
metadata: {name: p}
spec:
  initContainers: [{name: i, resources: &both {limits: {nvidia.com/gpu: 1}}}]
  containers: [{name: c, resources: *both}]
"""
    (read,) = decoded(text)
    assert read.spec.initContainers[0].resources == read.spec.containers[0].resources


@pytest.mark.parametrize(
    "labels",
    ["{a: {null: 1}}", "{a: {2026-01-01: 1}}", "{a: &x [*x]}", "{a: &x {b: *x}}"],
    ids=["null", "date", "list", "map"],
)
def test_a_wrong_value_that_json_cannot_show_is_named_all_the_same(labels: str) -> None:
    """The fuzzer found them: keys of any type, and lists that contain themselves."""
    with pytest.raises(InputError) as said:
        decoded(f"kind: Pod\nmetadata: {{name: p, labels: {labels}}}\n")
    assert str(said.value).startswith("metadata.labels")
