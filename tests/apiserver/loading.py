"""Loads whole clusters into the server: the objects of a generator, or of a dump file.

It exists because 100,000 pods cannot come one by one. It must not validate: a test may load what no API would take.
Invariant: objects are stored as they are given, with the system fields that they lack and this server's
resourceVersions; there are no events, and one object is decoded at a time.
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
    """Store objects; returns how many.

    The history of their resources starts anew. Raises ValueError for an unknown kind.
    """
    with _uncollected():
        return sum(
            registry.store.fill(resource, (_completed(registry, resource, obj) for obj in group))
            for resource, group in groupby(objects, _resource_of)
        )


def read_dump(path: Path) -> Iterator[Json]:
    """Yield the objects of a file: a List in JSON (decoded one object at a time), JSON lines, or YAML documents."""
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
    """Suspend garbage collection, which would walk everything that was loaded again and again."""
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
