"""Kubernetes manifests from files and bodies: YAML or JSON, one document, several, or a List.

Why it exists: `kubectl get ... -o json`, `-o yaml` and hand-written files all are manifests. It must not interpret
objects. Invariants: an object that does not decode does not stop the others; a file that is no manifest at all is an
error that names it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import yaml

from extender.wire import core_v1

T = TypeVar("T")
_Yaml = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class InputError(Exception):
    """Bad input from a person: the field, the value, and why. One line on standard error, exit status 2."""

    def __init__(self, field: str, value: str, why: str) -> None:
        super().__init__(" ".join(f"{field}: {value}: {why}".split()))


class Manifest(NamedTuple):
    """One object, still raw: its kind, where it stands, and its JSON or plain value."""

    kind: str
    where: str
    value: "msgspec.Raw | dict[str, Any]"

    def decode(self, kind: type[T]) -> T:
        """Decode into a wire type. Raises `InputError` naming the field."""
        try:
            if isinstance(self.value, dict):
                return msgspec.convert(self.value, kind, strict=True)
            return msgspec.json.decode(self.value, type=kind)
        except msgspec.ValidationError as error:
            text, _, path = str(error).partition(" - at ")
            field = path.strip("`").removeprefix("$.") or self.kind
            raise InputError(field, self.where, text) from None
        except msgspec.DecodeError as error:
            raise InputError(self.where, self.kind, str(error)) from None


class _Head(msgspec.Struct):
    kind: str | None = None
    metadata: core_v1.ObjectMeta | None = None
    items: list[msgspec.Raw] | None = None


def read_manifests(path: str, option: str) -> list[Manifest]:
    """Read a file, or standard input for "-". Raises `InputError` with the option's name."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise InputError(option, path, error.strerror or str(error)) from None
    return list(parse_manifests(data, option, path))


def parse_manifests(data: bytes, option: str, name: str) -> Iterator[Manifest]:
    """Yield the objects of a JSON or YAML text; a List is opened."""
    if data.lstrip()[:1] == b"{":
        try:
            yield from _json_objects(msgspec.Raw(data), option, name)
        except msgspec.DecodeError as error:
            raise InputError(option, name, f"not JSON: {error}") from None
        return
    try:
        documents = [document for document in yaml.load_all(data, _Yaml) if document is not None]
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise InputError(option, name, f"not YAML: {error}") from None
    if not documents:
        raise InputError(option, name, "holds no object")
    for document in documents:
        yield from _plain_objects(document, option, name)


def _json_objects(raw: msgspec.Raw, option: str, name: str) -> Iterator[Manifest]:
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except msgspec.ValidationError as error:
        raise InputError(option, name, str(error)) from None
    kind = head.kind
    if not kind:
        raise InputError("kind", name, "an object has no kind")
    if kind.endswith("List") and head.items is not None:
        for item in head.items:
            yield from _json_objects(item, option, name)
        return
    yield Manifest(kind, _where(kind, head.metadata), raw)


def _plain_objects(document: object, option: str, name: str) -> Iterator[Manifest]:
    if not isinstance(document, dict):
        raise InputError(option, name, f"holds {type(document).__name__}, not a Kubernetes object")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InputError("kind", name, "an object has no kind")
    items = document.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for item in items:
            yield from _plain_objects(item, option, name)
        return
    meta = document.get("metadata")
    names = (
        {key: meta[key] for key in ("name", "namespace") if isinstance(meta.get(key), str)}
        if isinstance(meta, dict)
        else {}
    )
    yield Manifest(kind, _where(kind, core_v1.ObjectMeta(**names)), _without_dates(document))


def _where(kind: str, meta: core_v1.ObjectMeta | None) -> str:
    name = (meta.name if meta is not None else None) or "(no name)"
    namespace = meta.namespace if meta is not None else None
    return f"{kind.lower()} {namespace}/{name}" if namespace else f"{kind.lower()} {name}"


def _without_dates(value: Any) -> Any:  # noqa: ANN401 - a YAML tree
    """Return the tree with dates as RFC 3339 text: YAML reads an unquoted 2026-11-29T16:18:33Z as a date."""
    if isinstance(value, dict):
        return {key: _without_dates(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_dates(each) for each in value]
    if hasattr(value, "isoformat"):
        text = value.isoformat()
        return text if "+" in text or "T" not in text else text + "Z"
    return value
