"""Paths of the API server are built in one place, from checked names only.

It exists because a name that is pasted into a path leads wherever its author wants. It must not judge what is asked
for. Invariant: a legal name gives the path of exactly that object, any other text gives none.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvariantViolation
from extender.kube.paths import LEASES, NODES, PODS, Resource, api_path
from extender.wire.names import are_plain, why_no_label, why_no_subdomain, why_no_uid

EXTENDER = Path(__file__).parents[2] / "extender"
ALLOWED = {"kube/paths.py"}
#: The extender's own lists, which have addresses of their own.
OWN = ("server/", "kubectl/main.py")

LEGAL = ["a", "0", "a-b", "a.b", "gpu-node-1.example.com", "x" * 63, "a" * 253]
ILLEGAL = [
    "",
    ".",
    "..",
    "../../../nodes/n1",
    "..%2F..%2Fnodes%2Fn1",
    "a/b",
    "a%2Fb",
    "a?b=c",
    "a#b",
    "A",
    "a_b",
    "-a",
    "a-",
    ".a",
    "a.",
    "a..b",
    "a.-b",
    "a-.b",
    "a b",
    "a\n",
    "a\x00",
    "a\u0661",
    "\u00e4",
    "a" * 254,
]


def test_the_paths_that_are_asked_for() -> None:
    assert api_path(NODES) == "/api/v1/nodes"
    assert api_path(NODES, "n1") == "/api/v1/nodes/n1"
    assert api_path(PODS, "p", namespace="a", subresource="binding") == "/api/v1/namespaces/a/pods/p/binding"
    assert api_path(LEASES, namespace="b") == "/apis/coordination.k8s.io/v1/namespaces/b/leases"


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_name_is_taken(name: str) -> None:
    assert why_no_subdomain(name) == ""
    assert api_path(PODS, name, namespace="default").split("/") == [
        "",
        "api",
        "v1",
        "namespaces",
        "default",
        "pods",
        name,
    ]


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_name_gives_no_path(name: str) -> None:
    assert why_no_subdomain(name)
    with pytest.raises(InvariantViolation):
        api_path(PODS, name, namespace="default")
    with pytest.raises(InvariantViolation):
        api_path(PODS, "p", namespace=name)


def test_a_namespace_is_one_label_and_a_uid_is_visible() -> None:
    assert why_no_label("a.b")
    assert why_no_label("x" * 64)
    assert why_no_label("x" * 63) == ""
    assert [why_no_uid(text) for text in ("3b6c1f0e-4c1e-4c0a-9a0c-1f2e3d4c5b6a", "default/p", "uid_1")] == ["", "", ""]
    assert all(why_no_uid(text) for text in ("", "a b", "a\x1b[2J", "u" * 254, "\u00e4"))


nearly_names = st.text("aZ0-. /\n\u00e4", max_size=5) | st.sampled_from([*LEGAL, "u" * 64, "u" * 253, "u" * 254])


@given(nearly_names, nearly_names, nearly_names)
def test_names_that_are_plain_at_a_glance_are_legal(namespace: str, name: str, uid: str) -> None:
    whys = (why_no_label(namespace), why_no_label(name), why_no_subdomain(name), why_no_uid(uid))
    assert are_plain(namespace, name, uid) == (not any(whys))


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from([NODES, PODS, LEASES]))
def test_whatever_the_names_a_path_has_as_many_parts_as_it_should(name: str, namespace: str, of: Resource) -> None:
    try:
        path = api_path(of, name, namespace=namespace)
    except InvariantViolation:
        return
    # This holds also for a server that unquotes before it splits.
    assert unquote(path).split("/")[-4:] == ["namespaces", namespace, of.plural, name]
    assert path == unquote(path)


def _texts(tree: ast.AST) -> Iterator[tuple[str, bool, int]]:
    """Yield each text of a module except docstrings, with whether something is pasted into it."""
    documents = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    inside = {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) for each in node.values if isinstance(each, ast.Constant)), True, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents | inside:
            yield node.value, False, node.lineno


def _own_paths(source: str) -> list[tuple[str, int]]:
    return [
        (text, line)
        for text, is_pasted, line in _texts(ast.parse(source))
        if "/apis/" in text
        or "/namespaces/" in text
        or text.startswith(("/api/v1", "/apis"))
        or (is_pasted and text.startswith("/api"))
    ]


def test_no_other_module_writes_a_path_of_the_api_server() -> None:
    found = {}
    for file in sorted(EXTENDER.rglob("*.py")):
        module = file.relative_to(EXTENDER).as_posix()
        if module not in ALLOWED and not module.startswith(OWN):
            paths = _own_paths(file.read_text())
            if paths:
                found[module] = paths
    assert found == {}


def test_no_server_of_ours_pastes_anything_into_a_path() -> None:
    for file in sorted((EXTENDER / OWN[0]).rglob("*.py")):
        texts = [text for text, is_pasted, _ in _texts(ast.parse(file.read_text())) if is_pasted]
        assert [text for text in texts if text.startswith("/api") or "/namespaces/" in text] == [], file


@pytest.mark.parametrize(
    "source",
    [
        'path = f"/api/v1/nodes/{node}"',
        'path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"',
        'path = f"{collection}/namespaces/{namespace}"',
        'path = "/api/v1/nodes/" + node',
        'path = "/apis/apps/v1"',
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert _own_paths(source)
