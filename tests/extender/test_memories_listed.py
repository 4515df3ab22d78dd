"""Every memory is listed in docs/memories.md, with what it keeps and what guards it.

It exists because no test compares an unknown memory with judging anew. It must not judge whether the text is right.
Invariant: it finds both ways in which this project keeps things: a bounded cache of a function, and a dictionary that
drops its oldest entry.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docs" / "memories.md").read_text(encoding="utf-8")
_DECORATORS = ("lru_cache", "cached_property", "cache")


def memories(path: Path) -> Iterator[str]:
    """Yield the names of a module's memories."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            called = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
            if any(ast.unparse(each).rpartition(".")[2] in _DECORATORS for each in called):
                yield node.name
        elif isinstance(node, ast.Assign) and "lru_cache" in ast.unparse(node.value):
            yield from (ast.unparse(target) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and "OrderedDict" in ast.unparse(node.annotation):
            yield ast.unparse(node.target).removeprefix("self.")


@pytest.fixture(scope="module")
def found() -> list[tuple[str, str]]:
    return [
        (path.relative_to(ROOT).as_posix(), name)
        for package in ("accounting", "extender")
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in memories(path)
    ]


def rows_of(path: str) -> str:
    """Return the rows of the tables that name a module."""
    return "\n".join(line for line in TEXT.splitlines() if line.startswith("|") and f"`{path}`" in line)


def test_there_are_memories(found: list[tuple[str, str]]) -> None:
    assert len(found) > 30


def test_each_memory_is_listed(found: list[tuple[str, str]]) -> None:
    assert [each for each in found if f"`{each[1]}`" not in rows_of(each[0])] == []


def test_what_is_listed_exists() -> None:
    named = {part for line in TEXT.splitlines() if line.startswith("|") for part in line.split("`") if "/" in part}
    paths = {part for part in named if part.endswith(".py") and " " not in part}
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
