"""Who holds a bearer token and what they may do: TokenReview and SubjectAccessReview.

Why it exists: the API server knows tokens and permissions, so the extender need not. It must not know HTTP servers or
keep a token: tokens are remembered by their digest. Invariants: without an answer of the API server nobody is let in;
answers are kept for a bounded time and in a bounded number; few questions go to the API server at a time, however many
are asked here. Sources: authentication.k8s.io/v1, authorization.k8s.io/v1; kube-rbac-proxy does the same.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import msgspec
import orjson

from extender.kube.client import Answer, KubeClient
from extender.kube.paths import ACCESS_REVIEWS, TOKEN_REVIEWS, api_path
from extender.logs import logger

T = TypeVar("T")
_ALLOWED_SECONDS = 60.0
_REFUSED_SECONDS = 10.0
_REMEMBERED = 1024
_TIMEOUT_SECONDS = 5.0
_AT_ONCE = 4
#: While so many wait, further clients get no answer, so that invented tokens neither queue up nor burden the API
#: server.
_WAITING = 16


class Access(Enum):
    """The decision on a request."""

    ALLOWED = "allowed"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"
    """The API server did not answer."""


class _User(msgspec.Struct, omit_defaults=True):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus | None = None


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus | None = None


class _Question(NamedTuple):
    token_digest: bytes
    verb: str
    path: str


class _Kept(NamedTuple):
    access: Access
    until: float


class Reviews:
    """Asks the API server, and remembers its answers."""

    def __init__(self, client: KubeClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._kept: OrderedDict[_Question, _Kept] = OrderedDict()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    async def may(self, token: str, verb: str, path: str) -> Access:
        """Return whether a token's holder may do `verb` (in lower case) on a non-resource path."""
        question = _Question(hashlib.sha256(token.encode()).digest(), verb, path)
        known = self._known(question)
        if known is not None:
            return known
        if self._waiting >= _WAITING:
            return Access.UNKNOWN
        self._waiting += 1
        try:
            async with self._turn:
                return self._known(question) or self._keep(question, await self._ask(token, verb, path))
        finally:
            self._waiting -= 1

    def _known(self, question: _Question) -> Access | None:
        kept = self._kept.get(question)
        return kept.access if kept is not None and self._clock() < kept.until else None

    def _keep(self, question: _Question, access: Access) -> Access:
        if access is not Access.UNKNOWN:
            seconds = _ALLOWED_SECONDS if access is Access.ALLOWED else _REFUSED_SECONDS
            self._kept[question] = _Kept(access, self._clock() + seconds)
            self._kept.move_to_end(question)
            if len(self._kept) > _REMEMBERED:
                self._kept.popitem(last=False)
        return access

    async def _ask(self, token: str, verb: str, path: str) -> Access:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        read = await self._post(api_path(TOKEN_REVIEWS), review, _TokenReview)
        if read is None or read.status is None:
            return Access.UNKNOWN
        user = read.status.user
        if not read.status.authenticated or user is None or not user.username:
            return Access.UNAUTHENTICATED
        spec: dict[str, Any] = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        found = await self._post(api_path(ACCESS_REVIEWS), asked, _AccessReview)
        if found is None or found.status is None:
            return Access.UNKNOWN
        return Access.ALLOWED if found.status.allowed else Access.FORBIDDEN

    async def _post(self, path: str, body: dict[str, Any], kind: type[T]) -> T | None:
        """Return the answered review; None without an answer."""
        answer = await self._client.request("POST", path, timeout_seconds=_TIMEOUT_SECONDS, body=orjson.dumps(body))
        if not answer.ok or not isinstance(answer, Answer):
            logger().warning("review not answered", path=path, status=answer.status, why=answer.message)
            return None
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except msgspec.DecodeError as error:
            logger().warning("review not answered", path=path, status=answer.status, why=str(error))
            return None
