"""Texts that are nested deeply: the same words on every interpreter, and no harm from what only one of them reads.

It exists because CPython 3.11 counts levels and 3.14 measures its stack, so the same object is refused by one and read
by the other. It must not depend on which is running. Invariant: whatever the depth, the answer is the normal one or one
line that says why not.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.config import Settings
from extender.convert import InputError, parse_manifests, pod_manifests, read_raw_budgets
from extender.convert.node import convert_node
from extender.journal.journal import read_journal
from extender.wire import admission_v1, core_v1, extender_v1, preemption_v1
from extender.wire.shallow import read_json, shallow
from extender.wire.unreadable import why_unreadable
from tests.extender.inside import run_inside
from tests.extender.nesting import NESTED, NESTED_ANNOTATION, SAID
from tests.extender.objects import REGISTER, Json, bound, container, listed, node, pod
from tests.extender.serving import Client, asked, serving

LINK_SCORES = "hami.io/node-nvidia-score"
REVIEW = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"%b}}'
GOOD = json.dumps(asked(pod(), "n1")).encode()
#: Around what CPython 3.11, 3.12 and 3.13 read, and what 3.14 keeps and skips.
DEPTHS = (900, 975, 985, 995, 1_010, 1_490, 1_600, 9_900, 10_100, 24_000, 25_500, 50_000, 255_000, 270_000)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def with_field(obj: Json, field: str, raw: bytes) -> bytes:
    """Return an object as JSON, with a further field at its end."""
    return json.dumps(obj).encode()[:-1] + b',"%b":%b}' % (field.encode(), raw)


# -- why a text was not read ------------------------------------------------------------------------------------------


def manifest(text: bytes) -> None:
    for each in pod_manifests(parse_manifests(text, "-f", "f")):
        each.decode(core_v1.Pod)


def journal(text: bytes, folder: Path) -> None:
    path = folder / "journal"
    path.write_bytes(text + b"\n")
    list(read_journal(str(path)))


WAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "filter": (lambda _: extender_v1.decode_args(GOOD[:-1] + b',"x":%b}' % NESTED), f"request body: {SAID}"),
    "preempt": (lambda _: preemption_v1.decode_preemption(b'{"Pod":%b}' % NESTED), f"request body: {SAID}"),
    "a review": (
        lambda _: admission_v1.decode_review(REVIEW % (b',"x":%b' % NESTED)),
        f"request body: {REVIEW.decode()[:40]}...: {SAID}",
    ),
    "a pod of a review": (
        lambda _: admission_v1.decode_pod(msgspec.Raw(b'{"x":%b}' % NESTED), "request.object"),
        'request.object: {"x":' + "[" * 35 + f"...: {SAID}",
    ),
    "an object of a review": (
        lambda _: admission_v1.decode_meta(msgspec.Raw(b'{"x":%b}' % NESTED), "request.object"),
        'request.object: {"x":' + "[" * 35 + f"...: {SAID}",
    ),
    "a manifest": (lambda _: manifest(b'{"kind":"Pod","x":%b}' % NESTED), f"-f: f: {SAID}"),
    "budgets": (lambda _: read_raw_budgets("budgets: " + "[" * 1_000, (), "f"), f"f: (file): {SAID}"),
    "a journal": (lambda folder: journal(b'{"op":"start","x":%b}' % NESTED, folder), f"line 1 {SAID}"),
}


@pytest.mark.parametrize("way, said", WAYS.values(), ids=WAYS.keys())
def test_what_is_said_does_not_depend_on_the_interpreter(
    way: Callable[[Path], object], said: str, tmp_path: Path
) -> None:
    errors = (extender_v1.WireError, admission_v1.ReviewError, admission_v1.ObjectError, InputError, ValueError)
    with pytest.raises(errors) as raised:
        way(tmp_path)
    assert str(raised.value) == said


def test_another_error_keeps_its_own_words() -> None:
    assert why_unreadable(ValueError("the text"), "is no such: ") == "is no such: the text"
    assert why_unreadable(ValueError("the text")) == "the text"
    assert why_unreadable(RecursionError("Stack overflow (used 3874 kB)"), "is no such: ") == SAID


@pytest.mark.parametrize("name", [REGISTER, LINK_SCORES])
def test_an_annotation_nested_too_deeply_is_a_problem_of_its_node(name: str) -> None:
    value = node("n1", annotations={name: NESTED_ANNOTATION})
    read = convert_node(msgspec.convert(value, core_v1.Node), Settings())
    (problem,) = read.problems
    assert problem.object == "node n1"
    assert SAID in problem.message
    assert bool(read.devices) == (name != REGISTER)


# -- whatever the depth -----------------------------------------------------------------------------------------------


@pytest.fixture
async def client() -> Any:  # noqa: ANN401 - an asynchronous generator
    async with serving(node("n1"), bound("filed", "n1", "GPU-n1-0")) as running:
        yield running


@pytest.mark.parametrize("levels", DEPTHS)
async def test_a_posted_pod_is_taken_or_refused_in_a_line(client: Client, levels: int) -> None:
    made = pod("deep")
    bodies = {
        "beside": with_field(made, "x", nested(levels)),
        "in metadata": with_field({"kind": "Pod"}, "metadata", with_field(made["metadata"], "x", nested(levels))),
        "as metadata": with_field({"kind": "Pod"}, "metadata", nested(levels)),
        "as an annotation": json.dumps(pod("deep", annotations={"a": "@"})).encode().replace(b'"@"', nested(levels)),
        "as a quantity": json.dumps(made).encode().replace(b'"100"', nested(levels)),
        "in a list": b'{"kind":"List","items":[%b]}' % with_field(made, "x", nested(levels)),
    }
    for where, body in bodies.items():
        answer = await client.post("/api/v1/pods", body)
        assert answer.status in (200, 201, 400), (where, answer)
        if answer.status == 400:
            assert answer.json().keys() == {"error"}, (where, answer)
        else:
            assert (await client.delete("deep")).status == 200
        assert (await client.post("/api/v1/explain", body)).status in (200, 400, 404), where


@pytest.mark.parametrize("levels", DEPTHS)
async def test_a_verb_is_answered_as_always_or_with_an_error(client: Client, levels: int) -> None:
    args, deep_node = asked(pod(), "n1"), with_field(node("n1"), "x", nested(levels))
    places = {
        "beside": with_field(args, "x", nested(levels)),
        "in the pod": with_field({"NodeNames": ["n1"]}, "Pod", with_field(pod(), "x", nested(levels))),
        "as a quantity": GOOD.replace(b'"100"', nested(levels)),
        "in a node": with_field({"Pod": pod()}, "Nodes", b'{"items":[%b]}' % deep_node),
    }
    for where, body in places.items():
        for verb in ("filter", "filter-dryrun", "prioritize", "preempt", "bind"):
            answer = await client.post(f"/{verb}", body)
            assert answer.status == 200, (where, verb, answer)
            assert b"internal error" not in answer.body, (where, verb, answer)
    assert (await client.filter(pod("later"), "n1"))["NodeNames"] == ["n1"]


@pytest.mark.parametrize("levels", DEPTHS)
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_account_answers_or_refuses_in_a_line(kind: str, levels: int, tmp_path: Path) -> None:
    made = pod("p", [container("main", {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "@"}})])
    if kind == "Deployment":
        made = {"kind": kind, "metadata": made["metadata"], "spec": {"template": made}}
    for text in (
        with_field(made, "x", nested(levels)),
        json.dumps(made).encode().replace(b'"@"', nested(levels)),
        # A second document, so that it is not read by the same reader.
        with_field(made, "x", nested(levels)) + b"\n---\n{}",
        json.dumps(made).encode().replace(b'"@"', nested(levels)) + b"\n" + json.dumps(made).encode(),
        with_field({"kind": kind}, "metadata", nested(levels)),
        with_field({"kind": kind, "metadata": {"name": "p"}}, "spec", nested(levels)),
    ):
        result = run_inside("account", "-f", "-", "-o", "json", stdin=text)
        assert result.status in (0, 2)
        assert result.err.count("\n") == (1 if result.status else 0)


@pytest.mark.parametrize("levels", DEPTHS)
def test_verify_names_an_object_or_refuses_the_file(levels: int, tmp_path: Path) -> None:
    text = nested(levels).decode()
    annotated = [node(f"n{number}", annotations={name: text}) for number, name in enumerate((REGISTER, LINK_SCORES))]
    plain = pod("deep", annotations={"a": "@"}), bound("held", "n1", "GPU-n1-0", annotations={"hami.io/x": text})
    deep = json.dumps(plain[0]).replace('"@"', text)
    path = tmp_path / "cluster.json"
    path.write_text(listed(*annotated, plain[1])[:-2] + f",{deep}]}}")
    result = run_inside("verify", "--cluster", path, "-o", "json")
    assert result.status in (1, 2)
    if result.status == 1:
        named = {each["object"] for each in result.json()["problems"]}
        assert {"pod default/deep", "node n0"} <= named
    else:
        assert result.err == f"error: --cluster: {path}: {SAID}\n"
    path.write_text(listed(*annotated, plain[1]))
    result = run_inside("verify", "--cluster", path, "-o", "json")
    assert result.status == 1
    assert "node n0" in {each["object"] for each in result.json()["problems"]}


# -- objects of an API server -----------------------------------------------------------------------------------------


def test_what_an_api_server_keeps_is_read_on_every_interpreter() -> None:
    """A kube-apiserver of 1.37 stored and served a pod whose managedFields had 9,990 levels."""
    made = with_field(bound("deep", "n1", "GPU-1")["metadata"], "managedFields", nested(9_990))
    read = read_json(b'{"metadata":%b,"spec":{"nodeName":"n1"}}' % made, core_v1.Pod)
    assert read.metadata is not None
    assert (read.metadata.name, read.spec and read.spec.nodeName) == ("deep", "n1")


TREES = st.recursive(
    st.one_of(st.none(), st.integers(), st.text('a"\\[]{},:é\n')),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text('a"\\]}'), inner, max_size=3)),
)
WRAPPINGS = st.lists(st.sampled_from(("list", "object", "beside")), max_size=30)


def cut(value: object, left: int = 250) -> object:
    """What `shallow` does, value by value."""
    if not isinstance(value, list | dict):
        return value
    if not left:
        return None
    if isinstance(value, list):
        return [cut(each, left - 1) for each in value]
    return {key: cut(each, left - 1) for key, each in value.items()}


@given(tree=TREES, other=TREES, wrappings=WRAPPINGS, levels=st.integers(220, 260))
def test_what_lies_too_deeply_is_null_and_all_else_stays(
    tree: Any,  # noqa: ANN401 - a JSON tree
    other: Any,  # noqa: ANN401 - a JSON tree
    wrappings: list[str],
    levels: int,
) -> None:
    for _ in range(levels):
        tree = [tree]
    for wrapping in wrappings:
        tree = {"list": [tree], "object": {"a": tree}, "beside": [other, tree, other]}[wrapping]
    for ascii_only in (True, False):
        text = json.dumps(tree, ensure_ascii=ascii_only).encode()
        assert json.loads(shallow(text)) == cut(tree)


@pytest.mark.parametrize("text", [b"", b"[" * 5_000, b"]" * 5_000, b'"' + b"[" * 5_000, b'[{"a' * 300, b"\\" * 999])
def test_what_is_no_json_is_refused_as_such(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_json(text, core_v1.Pod)
