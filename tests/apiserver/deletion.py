"""Deletes objects: preconditions, grace periods, finalizers.

It exists because a deleted pod stays until its kubelet lets it go, and an accountant of GPUs must handle the time in
between correctly. It must not know HTTP. Invariant: as in the real server, a pod that may go at once is marked first
and then removed: two events, two versions.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from tests.apiserver.calls import Call
from tests.apiserver.pods import grace_seconds
from tests.apiserver.registry import Registry, format_time
from tests.apiserver.resources import NAMESPACES, Json
from tests.apiserver.statuses import conflict
from tests.apiserver.stored import Stored


class Options(NamedTuple):
    """The options of a delete."""

    grace_seconds: int | None = None
    uid: str | None = None
    version: str | None = None


class Deleted(NamedTuple):
    """The last state of the object, and whether it is gone."""

    row: Stored
    gone: bool


def read_options(body: Json | None, query_grace: str) -> Options:
    """Read them from a DeleteOptions body, else from the query."""
    if body:
        preconditions = body.get("preconditions") or {}
        return Options(body.get("gracePeriodSeconds"), preconditions.get("uid"), preconditions.get("resourceVersion"))
    return Options(int(query_grace) if query_grace.lstrip("-").isdigit() else None)


def delete(registry: Registry, call: Call, options: Options) -> Deleted:
    """DELETE. Raises ApiError 404 or 409."""
    row = registry.get(call)
    _check_preconditions(call, row, options)
    asked = options.grace_seconds
    marked = _marked(registry, call, row, 1 if asked is not None and asked < 0 else asked)
    if marked is None:
        return Deleted(row, gone=False)
    obj, period = marked
    if obj != row.decode():
        row = registry.store.put(call.resource, obj, row)
    if obj["metadata"].get("finalizers") or period > 0:
        return Deleted(row, gone=False)
    removed = registry.store.remove(call.resource, row)
    if call.resource is NAMESPACES:
        _empty(registry, call.name)
    return Deleted(removed, gone=True)


def _check_preconditions(call: Call, row: Stored, options: Options) -> None:
    wanted = (
        ("UID", options.uid, row.uid, "deleted and then recreated"),
        ("ResourceVersion", options.version, str(row.version), "modified"),
    )
    for what, asked, actual, fate in wanted:
        if asked is not None and asked != actual:
            why = (
                f"the {what} in the precondition ({asked}) does not match the {what} in record ({actual}). "
                f"The object might have been {fate}"
            )
            raise conflict(call.resource.qualified_kind, call.name, why)


def _marked(registry: Registry, call: Call, row: Stored, asked: int | None) -> tuple[Json, int] | None:
    """Return the object marked for deletion, and its grace period; None if it is marked already and nothing changes."""
    obj = row.decode()
    meta = obj["metadata"]
    pending = meta.get("deletionGracePeriodSeconds") or 0
    if not call.resource.graceful:
        if meta.get("finalizers") and not meta.get("deletionTimestamp"):
            meta |= {"deletionTimestamp": registry.timestamp(), "deletionGracePeriodSeconds": 0}
        return obj, 0
    if not meta.get("deletionTimestamp"):
        period = grace_seconds(obj, asked)
        meta |= {"deletionTimestamp": registry.timestamp(period), "deletionGracePeriodSeconds": period}
        if meta.get("generation"):
            meta["generation"] += 1
        return obj, period
    if not pending:
        return obj, 0
    if asked is None or asked >= pending:
        return None
    earlier = format_time(datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(seconds=pending - asked))
    now, period = registry.timestamp(), asked
    if earlier < now:
        # The period cannot end in the past; of a positive one, a second stays.
        earlier, period = now, min(asked, 1)
    meta |= {"deletionTimestamp": earlier, "deletionGracePeriodSeconds": period}
    return obj, period


def _empty(registry: Registry, namespace: str) -> None:
    """Remove what was in a namespace, as its controller would."""
    for resource, table in registry.store.tables.items():
        if resource.namespaced:
            for row in [row for row in table.rows if row.namespace == namespace]:
                registry.store.remove(resource, row)
