"""Outcomes of admission as values.

Why it exists: a reason has a code for the metrics and a text for people. It must not decide. Invariant: the codes are
few and fixed, because they are label values.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_SHOWN = 8
_FORBIDDEN, _INVALID, _BAD_REQUEST, _UNAVAILABLE = 403, 422, 400, 503


class Why(StrEnum):
    """The reason of a decision."""

    # allowed
    NOT_CONCERNED = "NotConcerned"
    """It asks for no managed resource, or it is a write that is not checked."""
    MUTATED = "Mutated"
    UNCHANGED = "Unchanged"
    """It asks for managed resources and lacks nothing."""
    ADMITTED = "Admitted"
    OTHER_SCHEDULER = "OtherScheduler"
    """It asks for managed resources and names another scheduler, which is respected."""
    TRUSTED_ACCOUNT = "TrustedAccount"
    # denied
    INVALID_REQUEST = "InvalidRequest"
    AMBIGUOUS_REQUEST = "AmbiguousRequest"
    NEAR_MISS = "NearMiss"
    SCHEDULER_NAME = "SchedulerName"
    NODE_PRESET = "NodePreset"
    PRIVILEGED = "PrivilegedContainer"
    OWNED_KEY = "OwnedKey"
    QUOTA_EXCEEDED = "QuotaExceeded"
    NOT_SYNCED = "NotSynced"
    UNREADABLE_OBJECT = "UnreadableObject"


#: Status code and reason (metav1.StatusReason) of a denial. Errors in the object are Invalid; what is not allowed is
#: Forbidden, as with the API server's own quota.
_STATUS = {
    Why.INVALID_REQUEST: (_INVALID, "Invalid"),
    Why.AMBIGUOUS_REQUEST: (_INVALID, "Invalid"),
    Why.NEAR_MISS: (_INVALID, "Invalid"),
    Why.UNREADABLE_OBJECT: (_BAD_REQUEST, "BadRequest"),
    Why.NOT_SYNCED: (_UNAVAILABLE, "ServiceUnavailable"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason to deny, or to warn: a code, and `FIELD: VALUE: why`."""

    why: Why
    text: str
    only_told: bool = False
    """Whether it is only a warning, because it does no harm by itself."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of a webhook. Denied if there are findings; the first one gives the reason."""

    why: Why
    findings: tuple[Finding, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: list[dict[str, Any]] = field(default_factory=list)

    @property
    def allowed(self) -> bool:
        """Whether the request is allowed."""
        return not self.findings

    @property
    def message(self) -> str:
        """All findings in one line; if there are very many, the first ones."""
        texts = list(dict.fromkeys(finding.text for finding in self.findings))
        more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
        return "; ".join(texts[:_SHOWN]) + more

    @property
    def status(self) -> tuple[int, str]:
        """The status code and reason of a denial."""
        return _STATUS.get(self.why, (_FORBIDDEN, "Forbidden"))


def denied(findings: list[Finding], warnings: list[str] | None = None) -> Decision:
    """Return a denial; the first finding gives the reason."""
    return Decision(findings[0].why, tuple(findings), tuple(warnings or ()))
