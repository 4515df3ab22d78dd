"""TokenReview and SubjectAccessReview: who holds a token, and what they may do.

It exists to test code that lets the API server decide. It must not store objects. Invariant: only the users and
permissions that are entered here exist.
"""

from typing import Any

import orjson

from tests.apiserver.calls import Call
from tests.apiserver.resources import TOKEN_REVIEWS, Json
from tests.apiserver.statuses import ApiError


class Reviews:
    """Holders of tokens, and paths that they may use."""

    def __init__(self) -> None:
        self.users: dict[str, Json] = {}
        """By token, what a TokenReview says of its holder (username, groups, ...)."""
        self.allowed: set[tuple[str, str, str]] = set()
        """The allowed (user, verb, path)."""
        self.asked: list[Json] = []
        """The spec of every review so far."""

    def answer(self, call: Call, body: bytes) -> bytes:
        """Carry out a review. Raises ApiError 400 for a body that is no review."""
        try:
            review: Any = orjson.loads(body)
            spec: Json = review["spec"]
            self.asked.append(spec)
            if call.resource is TOKEN_REVIEWS:
                user = self.users.get(spec["token"])
                status: Json = {"authenticated": user is not None} | ({} if user is None else {"user": user})
            else:
                asked = spec["nonResourceAttributes"]
                status = {"allowed": (spec["user"], asked["verb"], asked["path"]) in self.allowed}
        except (ValueError, KeyError, TypeError) as error:
            raise ApiError(400, f"the review cannot be read: {error}") from None
        kind = {"kind": call.resource.kind, "apiVersion": call.resource.api_version}
        return orjson.dumps(kind | {"spec": spec, "status": status})
