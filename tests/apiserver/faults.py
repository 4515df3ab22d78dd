"""Rules that say which calls and which watch events go wrong, and how.

It exists because tests must cause on purpose, once and at a chosen place, all that a network and an API server can do.
It must not do the harm itself: it only says what is due. Invariant: a rule is used up by what it matches in order of
arrival, so a test that counts its requests knows which one fails; the same seed makes the same choices.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from random import Random
from typing import Any, Literal

import msgspec

from tests.apiserver.calls import Call
from tests.apiserver.history import EventType
from tests.apiserver.statuses import ApiError

RequestFault = Literal["latency", "status", "reset", "hang", "reorder"]
WatchFault = Literal["drop", "duplicate", "delay", "truncate", "garbage", "expire"]
WATCH_FAULTS = frozenset(("drop", "duplicate", "delay", "truncate", "garbage", "expire"))


class Rule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One rule. What is left out matches everything.

    Faults of a request, each before it is carried out or, with `after`, afterwards: `latency` (seconds), `status`
    (code, reason, retry_after_seconds), `reset`, `hang`; and `reorder`: answers are held until `size` of them can go
    out in reverse. A client that gives up does not stop its request: a late write takes effect.

    Faults of an event on a watch: `drop`, `duplicate`, `delay` (seconds: this watch alone falls behind), `truncate`
    (half a line, then the connection ends), `garbage` (a line that is not JSON before the event), `expire` (an ERROR
    event with code 410, then the stream ends).
    """

    fault: RequestFault | WatchFault

    method: str | None = None
    verb: str | None = None
    """get, list, watch, create, update, patch, delete."""
    resource: str | None = None
    """`pods`, `pods/binding`, ...; a pattern of fnmatch."""
    client: str | None = None
    """The bearer token, or without one the User-Agent; a pattern of fnmatch. Two replicas are told apart by it."""
    path: str | None = None
    """A regular expression that the whole path must match."""
    event: EventType | None = None
    """The type of the event; only for faults of events."""
    object: str | None = None
    """The key of the event's object, `namespace/name`; a pattern of fnmatch; only for faults of events."""

    skip: int = 0
    """How many matches first pass unharmed."""
    times: int | None = None
    """How many are harmed after that; without it, all."""
    probability: float = 1.0

    after: bool = False
    seconds: float = 0.0
    code: int = 500
    reason: str | None = None
    retry_after_seconds: int | None = None
    size: int = 2

    id: int = 0
    seen: int = 0
    hits: int = 0

    def matches(self, call: Call) -> bool:
        """Whether the rule is about this call."""
        return (
            (self.method is None or self.method == call.method)
            and (self.verb is None or self.verb == call.verb)
            and (self.resource is None or fnmatchcase(call.target, self.resource))
            and (self.client is None or fnmatchcase(call.client, self.client))
            and (self.path is None or re.fullmatch(self.path, call.path) is not None)
        )

    def matches_event(self, kind: EventType, key: str) -> bool:
        """Whether the rule is about this event."""
        return (self.event is None or self.event == kind) and (self.object is None or fnmatchcase(key, self.object))

    def error(self) -> ApiError:
        """The refusal of a `status` rule."""
        return ApiError(
            self.code, "injected by the test", reason=self.reason, retry_after_seconds=self.retry_after_seconds
        )


class Faults:
    """All rules, in the order in which they were added."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = Random(seed)
        self._rules: list[Rule] = []
        self._last_id = 0

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def add(self, rule: Rule | None = None, **fields: Any) -> Rule:  # noqa: ANN401 - the fields of a Rule
        """Add a rule, given whole or by its fields; `nth=3` means skip=2, times=1. Its `hits` count what it did."""
        if rule is None:
            if "nth" in fields:
                fields |= {"skip": fields.pop("nth") - 1, "times": 1}
            rule = msgspec.convert(fields, Rule)
        self._last_id += 1
        rule.id = self._last_id
        self._rules.append(rule)
        return rule

    def remove(self, rule_id: int) -> None:
        """Remove a rule."""
        self._rules = [rule for rule in self._rules if rule.id != rule_id]

    def clear(self) -> None:
        """Remove all rules."""
        self._rules = []

    def of_request(self, call: Call) -> list[Rule]:
        """Return the faults of this request."""
        if not self._rules:
            return []
        return [
            rule for rule in self._rules if rule.fault not in WATCH_FAULTS and rule.matches(call) and self._due(rule)
        ]

    def of_watch(self, call: Call) -> list[Rule]:
        """Return the rules for events that concern this watch."""
        return [rule for rule in self._rules if rule.fault in WATCH_FAULTS and rule.matches(call)]

    def of_event(self, call: Call, kind: EventType, key: str) -> list[Rule]:
        """Return the faults of one event on one watch."""
        return [rule for rule in self.of_watch(call) if rule.matches_event(kind, key) and self._due(rule)]

    def _due(self, rule: Rule) -> bool:
        rule.seen += 1
        if rule.seen <= rule.skip or (rule.times is not None and rule.hits >= rule.times):
            return False
        if rule.probability < 1 and self._rng.random() >= rule.probability:
            return False
        rule.hits += 1
        return True
