"""Fills in and compares the data of conformance cases.

It exists because a case states only what matters in an answer. It must not do I/O. Invariant: an expectation without
placeholders and matchers is matched by itself.

In what is sent and expected, `${name}` is a saved value and `${repeat:x:1000}` is a thousand x. In what is expected,
a mapping names only the keys that matter, a list names every element, and these texts match otherwise:
`<any>` a value that is there, `<absent>` a key that is not there, `<not TEXT>` another value, `<N items>` a list.
In what is sent, a mapping with `like: NAME` is that fixture, or that saved answer, with changes.
"""

import re
from collections.abc import Mapping
from typing import Any

_PLACEHOLDER = re.compile(r"\$\{([^}]+)\}")
_NOT = re.compile(r"<not (.*)>", re.DOTALL)
_ITEMS = re.compile(r"<(\d+) items>")
_SHOWN_CHARACTERS = 200


def fill(data: Any, values: Mapping[str, Any], fixtures: Mapping[str, Any]) -> Any:  # noqa: ANN401 - YAML data
    """Return the data with its placeholders filled in."""
    if isinstance(data, str):
        return _text(data, values)
    if isinstance(data, list):
        return [fill(one, values, fixtures) for one in data]
    if not isinstance(data, dict):
        return data
    filled = {_text(key, values): fill(value, values, fixtures) for key, value in data.items() if key != "like"}
    if "like" not in data:
        return filled
    name = data["like"]
    return _changed(fill(fixtures[name], values, fixtures) if name in fixtures else values[name], filled)


def mismatch(expected: Any, actual: Any, where: str = "") -> str | None:  # noqa: ANN401 - JSON data
    """Return where and how the actual value differs; None if it matches."""
    if isinstance(expected, dict):
        return _mapping_mismatch(expected, actual, where)
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return f"{where}: expected {len(expected)} elements, got {_shown(actual)}"
        found = (mismatch(one, two, f"{where}[{i}]") for i, (one, two) in enumerate(zip(expected, actual, strict=True)))
        return next((text for text in found if text is not None), None)
    return None if _matches(expected, actual) else f"{where}: expected {_shown(expected)}, got {_shown(actual)}"


def value_at(data: Any, path: str) -> Any:  # noqa: ANN401 - JSON data
    """Return the value at a path such as `items.0.metadata.name`; all of it at `.`. Raises KeyError."""
    if path == ".":
        return data
    for part in path.split("."):
        if isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        elif isinstance(data, dict) and part in data:
            data = data[part]
        else:
            raise KeyError(path)
    return data


def _text(text: str, values: Mapping[str, Any]) -> str:
    def replace(found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith("repeat:"):
            _, unit, count = name.split(":")
            return unit * int(count)
        return str(values[name])

    return _PLACEHOLDER.sub(replace, text)


def _changed(base: Any, changes: Any) -> Any:  # noqa: ANN401 - YAML data
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return base | {key: _changed(base.get(key), value) for key, value in changes.items()}


def _mapping_mismatch(expected: dict[str, Any], actual: Any, where: str) -> str | None:  # noqa: ANN401 - JSON data
    if not isinstance(actual, dict):
        return f"{where}: expected an object, got {_shown(actual)}"
    for key, value in expected.items():
        path = f"{where}.{key}" if where else key
        if value == "<absent>":
            if key in actual:
                return f"{path}: expected to be absent, got {_shown(actual[key])}"
            continue
        if key not in actual:
            return f"{path}: expected {_shown(value)}, is absent"
        text = mismatch(value, actual[key], path)
        if text is not None:
            return text
    return None


def _matches(expected: Any, actual: Any) -> bool:  # noqa: ANN401 - JSON data
    if isinstance(expected, str):
        if expected == "<any>":
            return actual is not None
        found = _NOT.fullmatch(expected)
        if found is not None:
            return str(actual) != found[1]
        found = _ITEMS.fullmatch(expected)
        if found is not None:
            return isinstance(actual, list) and len(actual) == int(found[1])
    return type(expected) is type(actual) and bool(expected == actual)


def _shown(value: Any) -> str:  # noqa: ANN401 - JSON data
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
