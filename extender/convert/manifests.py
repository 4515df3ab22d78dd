"""Kubernetes manifests from files and bodies: YAML or JSON, one document, several, or a List.

Why it exists: `kubectl get ... -o json`, `-o yaml` and hand-written files are all manifests. It must not interpret
objects. Invariants: an object that does not decode does not stop the others; a file that is not a manifest at all is an
error that names the file.
"""

import json
import re
import sys
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import yaml

from extender.wire.unreadable import NESTED_TOO_DEEPLY, UNREADABLE, why_unreadable

T = TypeVar("T")
_Yaml = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: The start of a JSON object. YAML's flow style may also start with a brace, but its first key has no quotes.
_JSON_OBJECT = re.compile(rb"\s*\{\s*[\"}]")
#: What may separate the documents of a file: blanks and YAML's marks.
_BETWEEN = re.compile(r"(?:\s|^---\s*$|^\.\.\.\s*$)*", re.MULTILINE)
#: One step of the path in msgspec's messages: a field, a position, or "..." for a key of a map.
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_SHOWN = 120


class InputError(Exception):
    """Bad input from a person: the field, the value, and why. One line on standard error, exit status 2."""

    def __init__(self, field: str, value: str, why: str) -> None:
        super().__init__(" ".join(f"{field}: {value}: {why}".split()))


class Manifest(NamedTuple):
    """One object, undecoded: its kind, its place in the file, and its JSON or plain value."""

    kind: str
    where: str
    value: "msgspec.Raw | dict[str, Any]"

    def decode(self, kind: type[T]) -> T:
        """Decode into a wire type. Raises `InputError` naming the field."""
        try:
            return self._decoded(kind)
        except UNREADABLE as error:
            raise InputError(self.where, self.kind, why_unreadable(error)) from None

    def whole(self) -> dict[str, Any]:
        """Return all of the object. Raises `InputError`."""
        return self.value if isinstance(self.value, dict) else self.decode(dict[str, Any])

    def _decoded(self, kind: type[T]) -> T:
        try:
            if isinstance(self.value, dict):
                return msgspec.convert(self.value, kind, strict=True)
            return msgspec.json.decode(self.value, type=kind)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at ")
            # This reads the whole object, also what decoding passed over, which may be nested too deeply.
            field, value = self._found(path)
            raise InputError(field or self.kind, value, f"{self.where}: {text}") from None

    def _found(self, path: str) -> tuple[str, str]:
        """Return the field at a message's path, and its value. Raises `msgspec.DecodeError` if the rest is no JSON."""
        value = self.value if isinstance(self.value, dict) else _any_value(self.value)
        field = ""
        for name, position in _STEP.findall(path):
            key: Any = name or position
            if position == "..." and isinstance(value, dict):
                # Only maps of texts can have a value of a wrong type.
                key = next((key for key, each in value.items() if not isinstance(each, str)), None)
            elif position and position != "...":
                key = int(position)
            if key is None:
                break
            field += f".{name}" if name else f"[{key}]"
            try:
                value = value[key]
            except (LookupError, TypeError):
                # A key that is written twice had another value where the mistake is.
                return field.removeprefix("."), "(a key is written twice)"
        try:
            shown = msgspec.json.encode(value).decode()
        except ValueError:
            # YAML reads 0x with any number of digits, but Python writes at most 4,300.
            shown = f"({type(value).__name__} with a number of too many digits)"
        except (TypeError, RecursionError):
            # Keys in YAML may be of any type, and a list may hold itself.
            shown = f"({type(value).__name__} that JSON cannot show)"
        return field.removeprefix("."), shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."


def _any_value(raw: msgspec.Raw) -> Any:  # noqa: ANN401 - a JSON tree
    """Return the value of a JSON text, with numbers of any size."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        try:
            return json.loads(bytes(raw), parse_int=Decimal, parse_float=Decimal)
        except ValueError:
            raise error from None


class _Head(msgspec.Struct):
    kind: str | None = None
    metadata: msgspec.Raw = msgspec.Raw(b"null")
    items: msgspec.Raw = msgspec.Raw(b"null")


class _Names(msgspec.Struct):
    """The part of metadata that names an object; the values may be of any type."""

    name: Any = None
    namespace: Any = None


def read_manifests(path: str, option: str) -> list[Manifest]:
    """Read a file, or standard input for "-". Raises `InputError` that names the option."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise InputError(option, path, error.strerror or str(error)) from None
    return list(parse_manifests(data, option, path))


def parse_manifests(data: bytes, option: str, name: str) -> Iterator[Manifest]:
    """Yield the objects of a JSON or YAML text; of a List its items."""
    try:
        if _JSON_OBJECT.match(data):
            yield from _json_text(data, option, name)
        else:
            yield from _yaml_text(data, option, name)
    except RecursionError:
        raise InputError(option, name, NESTED_TOO_DEEPLY) from None


def parse_json_manifests(data: bytes, option: str, name: str) -> Iterator[Manifest]:
    """Yield the object of a JSON text, or the objects of a List.

    Raises `InputError`, also for YAML, which takes some hundred times as long to read.
    """
    try:
        yield from _json_objects(msgspec.Raw(data), option, name)
    except RecursionError:
        raise InputError(option, name, NESTED_TOO_DEEPLY) from None
    except msgspec.DecodeError as error:
        raise InputError(option, name, f"not JSON: {error}") from None


def _json_text(data: bytes, option: str, name: str) -> Iterator[Manifest]:
    try:
        yield from _json_objects(msgspec.Raw(data), option, name)
    except msgspec.DecodeError as error:
        documents = _json_documents(data)
        if documents is None:
            raise InputError(option, name, f"not JSON: {error}") from None
        for document in documents:
            yield from _plain_objects(document, option, name)


def _json_documents(data: bytes) -> list[object] | None:
    """Return the JSON values of a text; None if the text is anything else."""
    documents: list[object] = []
    try:
        text = data.decode()
        position = len(_BETWEEN.match(text)[0])  # type: ignore[index]  # it matches the empty text
        while position < len(text):
            document, position = json.JSONDecoder().raw_decode(text, position)
            documents.append(document)
            position = _BETWEEN.match(text, position).end()  # type: ignore[union-attr]
    except ValueError:
        return None
    return documents


def _yaml_text(data: bytes, option: str, name: str) -> Iterator[Manifest]:
    try:
        documents = [document for document in yaml.load_all(data, _Yaml) if document is not None]
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(option, name, f"not YAML: {error}") from None
    if not documents:
        raise InputError(option, name, "holds no object")
    for document in documents:
        yield from _plain_objects(document, option, name)


def _json_objects(raw: msgspec.Raw, option: str, name: str, listed: str = "") -> Iterator[Manifest]:
    """Yield an object, or the objects of a List. `listed`: the kind of its entries if they name none."""
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except msgspec.ValidationError as error:
        raise InputError(option, name, str(error)) from None
    kind = head.kind or listed
    if not kind:
        raise InputError("kind", name, "an object has no kind")
    if kind.endswith("List") and bytes(head.items)[:1] == b"[":
        for item in msgspec.json.decode(head.items, type=list[msgspec.Raw]):
            yield from _json_objects(item, option, name, kind.removesuffix("List"))
        return
    try:
        names = msgspec.json.decode(head.metadata, type=_Names)
    except msgspec.ValidationError:
        names = _Names()
    yield Manifest(kind, _where(kind, names), raw)


def _plain_objects(document: object, option: str, name: str, listed: str = "") -> Iterator[Manifest]:
    if not isinstance(document, dict):
        raise InputError(option, name, f"holds {type(document).__name__}, not a Kubernetes object")
    kind = document.get("kind") or listed
    if not isinstance(kind, str) or not kind:
        raise InputError("kind", name, "an object has no kind")
    items = document.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for item in items:
            yield from _plain_objects(item, option, name, kind.removesuffix("List"))
        return
    meta = document.get("metadata")
    names = _Names(meta.get("name"), meta.get("namespace")) if isinstance(meta, dict) else _Names()
    yield Manifest(kind, _where(kind, names), _without_dates(document, {}))


def _where(kind: str, names: _Names) -> str:
    name, namespace = (text if isinstance(text, str) else "" for text in (names.name, names.namespace))
    return f"{kind.lower()} {namespace}{'/' if namespace else ''}{name or '(no name)'}"


def _without_dates(value: Any, known: dict[int, Any]) -> Any:  # noqa: ANN401 - a YAML tree
    """Return the tree with dates as RFC 3339 text: YAML reads an unquoted 2026-11-29T16:18:33Z as a date.

    `known`: the results for lists and maps so far, because aliases may refer to one of them many times.
    """
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, dict):
        table: dict[Any, Any] = known.setdefault(id(value), {})
        table.update((key, _without_dates(each, known)) for key, each in value.items())
        return table
    if isinstance(value, list):
        entries: list[Any] = known.setdefault(id(value), [])
        entries.extend(_without_dates(each, known) for each in value)
        return entries
    if isinstance(value, datetime):
        return value.isoformat() + ("Z" if value.tzinfo is None else "")
    return value.isoformat() if isinstance(value, date) else value
