"""Patches and selectors, by their definitions."""

from typing import Any

import pytest

from tests.apiserver.patches import JSON_PATCH, apply_patch
from tests.apiserver.resources import PODS, Json
from tests.apiserver.selectors import read_fields, read_labels
from tests.apiserver.statuses import ApiError

MERGE = "application/merge-patch+json"


@pytest.mark.parametrize(
    "doc, patch, expected",
    [
        # The examples of RFC 7386 that patch an object.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(doc: Json, patch: Json, expected: Json) -> None:
    before = repr(doc)
    assert apply_patch(doc, patch, MERGE) == expected
    assert repr(doc) == before


@pytest.mark.parametrize(
    "operations, expected",
    [
        ([{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3], "b": {"c/d": 1}}),
        ([{"op": "add", "path": "/a/0", "value": 0}], {"a": [0, 1, 2], "b": {"c/d": 1}}),
        ([{"op": "remove", "path": "/b/c~1d"}], {"a": [1, 2], "b": {}}),
        ([{"op": "replace", "path": "/a", "value": {}}], {"a": {}, "b": {"c/d": 1}}),
        ([{"op": "move", "from": "/a/1", "path": "/b/x"}], {"a": [1], "b": {"c/d": 1, "x": 2}}),
        ([{"op": "copy", "from": "/b", "path": "/c"}], {"a": [1, 2], "b": {"c/d": 1}, "c": {"c/d": 1}}),
        ([{"op": "test", "path": "/a", "value": [1, 2]}], {"a": [1, 2], "b": {"c/d": 1}}),
    ],
)
def test_json_patch(operations: list[Json], expected: Json) -> None:
    assert apply_patch({"a": [1, 2], "b": {"c/d": 1}}, operations, JSON_PATCH) == expected


@pytest.mark.parametrize(
    "patch, code",
    [
        ([{"op": "test", "path": "/a", "value": 2}], 422),
        ([{"op": "remove", "path": "/b"}], 422),
        ([{"op": "replace", "path": "/b", "value": 1}], 422),
        ([{"op": "add", "path": "/b/c", "value": 1}], 422),
        ([{"op": "nothing", "path": "/a", "value": 1}], 400),
        ([{"path": "/a"}], 400),
        ([1], 400),
        ({}, 400),
    ],
)
def test_json_patches_that_fail(patch: Any, code: int) -> None:  # noqa: ANN401 - what a client may send
    with pytest.raises(ApiError) as error:
        apply_patch({"a": 1}, patch, JSON_PATCH)
    assert error.value.code == code


def selected(text: str, labels: dict[str, str]) -> bool:
    return all(test(labels.get(key)) for key, test in read_labels(text))


@pytest.mark.parametrize(
    "text, yes, no",
    [
        ("", {}, None),
        ("a=b", {"a": "b"}, {"a": "c"}),
        ("a==b", {"a": "b"}, {}),
        ("a=", {"a": ""}, {"a": "b"}),
        ("a!=b", {}, {"a": "b"}),
        ("a in (b, c)", {"a": "c"}, {}),
        ("a notin (b,c)", {}, {"a": "b"}),
        ("a", {"a": ""}, {}),
        ("!a", {}, {"a": ""}),
        ("a>3", {"a": "4"}, {"a": "3"}),
        ("a<3", {"a": "2"}, {"a": "x"}),
        ("a=b,c in (d),!e", {"a": "b", "c": "d"}, {"a": "b", "c": "d", "e": ""}),
        ("example.com/in=notin", {"example.com/in": "notin"}, {}),
    ],
)
def test_label_selectors(text: str, yes: dict[str, str], no: dict[str, str] | None) -> None:
    assert selected(text, yes)
    assert no is None or not selected(text, no)


@pytest.mark.parametrize("text", ["a in b", "=b", "a=b=c", "a in (b", "a=b,,c", "!"])
def test_label_selectors_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ApiError):
        read_labels(text)


def test_field_selectors() -> None:
    terms = read_fields(PODS, r"spec.nodeName!=,metadata.name==a\,b")
    assert [(key, test(""), test("a,b")) for key, test in terms] == [
        ("spec.nodeName", False, True),
        ("metadata.name", False, True),
    ]
    for text in ("spec.nodeName", "spec.x=1", "spec.nodeName=a b,,"):
        with pytest.raises(ApiError):
            read_fields(PODS, text)
