"""Counts the requests that the server gets.

It exists so that a test can check how many API calls a pod costs. It must not judge them. Invariant: every API request
is counted once, when it arrives, also if a fault then prevents it.
"""

from collections import Counter, deque
from typing import NamedTuple

from tests.apiserver.calls import Call

_RECENT = 10_000


class Seen(NamedTuple):
    """One request."""

    method: str
    verb: str
    target: str
    path: str
    client: str


class Requests:
    """All requests since the start or the last reset."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """By method, verb and resource (`pods`, `pods/binding`, ...)."""
        self.recent: deque[Seen] = deque(maxlen=_RECENT)

    def add(self, call: Call) -> None:
        """Count a request."""
        self.counts[call.method, call.verb, call.target] += 1
        self.recent.append(Seen(call.method, call.verb, call.target, call.path, call.client))

    def count(self, *, method: str | None = None, verb: str | None = None, resource: str | None = None) -> int:
        """Return how many there were; what is left out matches everything."""
        return sum(
            count
            for (of_method, of_verb, of_resource), count in self.counts.items()
            if method in (None, of_method) and verb in (None, of_verb) and resource in (None, of_resource)
        )

    def reset(self) -> None:
        """Start counting anew."""
        self.counts.clear()
        self.recent.clear()

    def table(self) -> list[dict[str, str | int]]:
        """Return the counts as rows, in order."""
        return [
            {"method": method, "verb": verb, "resource": resource, "count": count}
            for (method, verb, resource), count in sorted(self.counts.items())
        ]
