"""Sends random events one after another, and stops at the first difference from the reference.

It exists so that each world of events defines only its events and its comparisons. It must not know either. Invariant:
everything follows from the seed, so an event's number finds the difference again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

Event = TypeVar("Event")


class Difference(Exception):
    """The code and the reference disagree."""


@dataclass
class Summary:
    """What a run did, and the first difference that ended it, if any."""

    seed: int
    events: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    full_checks: int = 0
    most_pods: int = 0
    difference: str | None = None


class Driver(Protocol):
    """Draws events and shows them to a world."""

    def step(self) -> str:
        """Send one event and compare what it concerns; returns the event's kind."""
        ...

    def check(self) -> None:
        """Compare everything. Raises Difference, as `step` does."""
        ...

    def pods(self) -> int:
        """How many pods there are now."""
        ...


class Chance:
    """The only source of chance in a run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, one_in: int) -> bool:
        """Whether it happens this time."""
        return self.random.randrange(one_in) == 0

    def kind(self, weights: dict[Callable[[], Event], int]) -> Callable[[], Event]:
        """Return one of these events."""
        return self.random.choices([*weights], [*weights.values()])[0]


def drive(
    driver: Driver, seed: int, events: int, check_every: int, progress: Callable[[int], object] | None = None
) -> Summary:
    """Send that many events; compare what each concerns right after it, and everything after each `check_every`.

    `progress` is called with the number of events so far.
    """
    summary = Summary(seed)
    try:
        for number in range(1, events + 1):
            summary.events = number
            summary.by_kind[driver.step()] += 1
            summary.most_pods = max(summary.most_pods, driver.pods())
            if number % check_every == 0 or number == events:
                driver.check()
                summary.full_checks += 1
            if progress is not None:
                progress(number)
    except Difference as error:
        summary.difference = str(error)
    except Exception as error:
        error.add_note(f"seed {seed}, event {summary.events}")
        raise
    return summary


def same(what: str, have: object, want: object) -> None:
    """Raise Difference unless both are equal."""
    if have != want:
        raise Difference(f"{what}: here it is {have}, in the reference {want}")
