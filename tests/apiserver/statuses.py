"""Refusals, as the metav1.Status objects in which a Kubernetes API server writes them.

It exists because clients decide by code and reason, and read Retry-After and the causes of a 422. It must not know why
a call is refused. Invariant: an ApiError is the whole answer: HTTP status, headers and body.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Cause(NamedTuple):
    """One field that a 422 objects to."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """A refusal. Go errors that nothing wraps are 500s without a reason: `reason=""`."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
        retry_after_seconds: int | None = None,
        continue_token: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = _REASONS.get(code, "Unknown") if reason is None else reason
        self.details = details
        self.retry_after_seconds = retry_after_seconds
        self.continue_token = continue_token

    def status(self) -> dict[str, Any]:
        """The Status object."""
        details = dict(self.details or {})
        if self.retry_after_seconds is not None:
            details["retryAfterSeconds"] = self.retry_after_seconds
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {} if self.continue_token is None else {"continue": self.continue_token},
            "status": "Failure",
            "message": str(self),
            **({"reason": self.reason} if self.reason else {}),
            **({"details": details} if details else {}),
            "code": self.code,
        }

    def body(self) -> bytes:
        """The Status object, encoded."""
        return orjson.dumps(self.status())

    def headers(self) -> dict[str, str]:
        """Retry-After, where the Status has it."""
        return {} if self.retry_after_seconds is None else {"Retry-After": str(self.retry_after_seconds)}


def success(details: dict[str, Any] | None = None, code: int | None = None) -> bytes:
    """Return the Status object of a success, encoded."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    if code is not None:
        status["code"] = code
    return orjson.dumps(status)


def not_found(qualified: str, name: str) -> ApiError:
    """404: `qualified` is `pods`, `leases.coordination.k8s.io`, ..."""
    return ApiError(404, f'{qualified} "{name}" not found', details=_details(qualified, name))


def already_exists(qualified: str, name: str) -> ApiError:
    """409 to a create."""
    message = f'{qualified} "{name}" already exists'
    return ApiError(409, message, reason="AlreadyExists", details=_details(qualified, name))


def conflict(qualified: str, name: str, why: str) -> ApiError:
    """409 to any other write."""
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return ApiError(409, message, details=_details(qualified, name))


def stale(qualified: str, name: str) -> ApiError:
    """409 because the resourceVersion is not the object's."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(qualified, name, why)


def invalid(kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: `kind` is `Pod`, `Lease.coordination.k8s.io`, ..."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    why = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(kind, name) | {"causes": [cause._asdict() for cause in causes]}
    return ApiError(422, f'{kind} "{name}" is invalid: {why}', details=details)


def too_large_version(asked: int, current: int) -> ApiError:
    """504: a resourceVersion that has not been given yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiError(504, message, details={"causes": [cause]}, retry_after_seconds=1)


def too_old_version(asked: int, oldest: int) -> ApiError:
    """410: a resourceVersion that the history no longer reaches."""
    return ApiError(410, f"too old resource version: {asked} ({oldest})")


def _details(qualified: str, name: str) -> dict[str, Any]:
    kind, _, group = qualified.partition(".")
    return ({"name": name} if name else {}) | ({"group": group} if group else {}) | {"kind": kind}
