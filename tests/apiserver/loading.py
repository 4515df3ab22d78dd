"""Brings whole clusters into the server: objects of a generator, or of a dump file.

It exists because 100,000 pods cannot come one by one. It must not validate: a test may load what no API would take.
Invariant: the state is the objects as they were given, with the system fields that they lack and
resourceVersions of this server; nothing is an event, and one object at a time is decoded.
"""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.apiserver.registry import Registry
from tests.apiserver.resources import BY_KIND, Json, Resource

_DEFAULT_NAMESPACE = "default"


class _List(msgspec.Struct):
    items: list[msgspec.Raw]


def load(registry: Registry, objects: Iterable[Json]) -> int:
    """Put objects in; how many. Of each resource, the history starts anew. Raises ValueError for an unknown kind."""
    with _uncollected():
        return sum(
            registry.store.fill(resource, (_completed(registry, resource, obj) for obj in group))
            for resource, group in groupby(objects, _resource_of)
        )


def read_dump(path: Path) -> Iterator[Json]:
    """The objects of a file: a List in JSON (one whole object at a time is decoded), JSON lines, or YAML documents."""
    if path.suffix in (".yaml", ".yml"):
        for document in yaml.safe_load_all(path.read_text()):
            yield from document["items"] if "items" in (document or {}) else [document] if document else []
        return
    decode = msgspec.json.Decoder().decode
    if path.suffix == ".jsonl":
        with path.open("rb") as lines:
            yield from (decode(line) for line in lines if line.strip())
        return
    for raw in msgspec.json.decode(path.read_bytes(), type=_List).items:
        yield decode(raw)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection: it would walk everything that was loaded, again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _resource_of(obj: Json) -> Resource:
    known: Any = (obj.get("apiVersion"), obj.get("kind"))
    if known not in BY_KIND:
        raise ValueError(f"kind: {known[0]}/{known[1]}: not a resource of this server")
    return BY_KIND[known]


def _completed(registry: Registry, resource: Resource, obj: Json) -> Json:
    meta = obj["metadata"] = dict(obj.get("metadata") or {})
    meta.setdefault("uid", registry.new_uid())
    meta.setdefault("creationTimestamp", registry.timestamp())
    if resource.namespaced:
        meta.setdefault("namespace", _DEFAULT_NAMESPACE)
    return obj
