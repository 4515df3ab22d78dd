"""Who owns a node lock, and whether it still keeps others out.

Why it exists: a lock that was left behind closes its node for five minutes, and a lock that is broken too early makes
two pods swap cards. It must not write. Invariants: a lock whose owner is gone, finished or has given up is stale at
once; if that cannot be found out, the lock counts. Source: HAMi v2.10 nodelock: `<RFC 3339 time>,<namespace>,<name>`,
older releases wrote the time only.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from extender.kube.client import Answer, KubeClient
from extender.kube.paths import PODS, api_path
from extender.wire.names import why_no_label, why_no_subdomain
from extender.wire.shallow import read_json

#: HAMi's own limit: an owner that holds a lock longer has failed. It also applies to a time that far in the future.
EXPIRY = timedelta(minutes=5)
#: Lock and Binding are written within one httpTimeout. If another scheduler's pod is not on the node by then, its bind
#: has failed. For our own pods that is known at once.
ABANDONED = timedelta(seconds=20)
_REQUEST_SECONDS = 5.0


class OwnerState(Enum):
    """What this process, the only one that binds our pods, knows of a lock's owner."""

    UNKNOWN = "unknown"
    """It does not exist, is not ours, or the watch has not shown it yet."""
    ELSEWHERE = "elsewhere"
    """It is ours and not on this node, and no bind to this node is under way or can still arrive."""
    BOOKED = "booked"
    """It is on this node, or may be."""


class LockOwner(NamedTuple):
    """Who holds a lock, and since when. Names are empty in the old form of the lock."""

    since: datetime
    namespace: str
    name: str


class _Status(msgspec.Struct):
    phase: str | None = None


class _Spec(msgspec.Struct):
    nodeName: str | None = None  # noqa: N815 - the API's name


class _Owner(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def parse_lock(text: str) -> LockOwner | None:
    """Read a lock; None if it is unreadable. The old form without an owner has empty names."""
    parts = text.split(",")
    if len(parts) not in (1, 3):
        return None
    try:
        since = datetime.fromisoformat(parts[0])
    except ValueError:
        return None
    since = since if since.tzinfo is not None else since.replace(tzinfo=UTC)
    if len(parts) == 1:
        return LockOwner(since, "", "")
    namespace, name = parts[1:]
    # Anybody who may annotate the node can write these names, and they become part of a path.
    return None if why_no_label(namespace) or why_no_subdomain(name) else LockOwner(since, namespace, name)


class LockOwners:
    """Judges the locks of others."""

    def __init__(
        self, client: KubeClient, state: Callable[[str, str, str], OwnerState], now: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._state = state
        self._now = now

    async def blocking(self, node: str, text: str | None, asking: LockOwner, deadline: float) -> str | None:
        """Return who keeps `asking` from getting the lock now; None if it is free, ours or stale."""
        owner = None if text is None else parse_lock(text)
        if owner is None or owner[1:] == asking[1:]:
            return None
        age = self._now() - owner.since
        if abs(age) > EXPIRY:
            return None
        if not owner.name:
            return "an unnamed owner"
        state = self._state(node, owner.namespace, owner.name)
        given_up = age > ABANDONED or state is OwnerState.ELSEWHERE
        if (given_up or state is OwnerState.UNKNOWN) and await self._is_over(node, owner, deadline, given_up=given_up):
            return None
        return f"{owner.namespace}/{owner.name}"

    async def _is_over(self, node: str, owner: LockOwner, deadline: float, *, given_up: bool) -> bool:
        """Ask the API server whether an owner has ended, or is not on the node although its bind is over.

        Memory is not enough, because the watch may not have shown a new pod yet.
        """
        path = api_path(PODS, owner.name, namespace=owner.namespace)
        left = deadline - asyncio.get_running_loop().time()
        answer = await self._client.request("GET", path, timeout_seconds=max(0.1, min(left, _REQUEST_SECONDS)))
        if answer.status == HTTPStatus.NOT_FOUND:
            return True
        if not (isinstance(answer, Answer) and answer.ok):
            return False
        pod = read_json(answer.body, _Owner)
        return pod.status.phase in ("Succeeded", "Failed") or (given_up and pod.spec.nodeName != node)
