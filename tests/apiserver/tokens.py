"""Bearer tokens that a client must show, and that expire.

It exists to test a client's refresh of its token. It must not know who holds a token. Invariant: until the first token
is allowed, every client is let in.
"""

from collections.abc import Callable

from tests.apiserver.statuses import ApiError

_PREFIX = "Bearer "


class Tokens:
    """The tokens that are valid now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}
        self._required = False

    def allow(self, token: str, seconds: float | None = None) -> None:
        """Allow a token, for ever or for a time. From the first one on, tokens are required."""
        self._required = True
        self._ends[token] = float("inf") if seconds is None else self._clock() + seconds

    def revoke(self, token: str) -> None:
        """Allow a token no longer."""
        self._ends.pop(token, None)

    def check(self, authorization: str) -> None:
        """Raise ApiError 401 unless the token is valid or none is required."""
        if not self._required:
            return
        end = self._ends.get(authorization.removeprefix(_PREFIX)) if authorization.startswith(_PREFIX) else None
        if end is None or end <= self._clock():
            raise ApiError(401, "Unauthorized")
