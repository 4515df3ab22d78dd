"""The worked examples of the rule, as stories: what a pod asks for, what happens to it, and what it must hold.

It exists so that every expected number is written by hand and none is computed. It must not talk to a server.
Invariant: `peak` and `steady` are the numbers of the rule's own examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from benchmarks.demo_pods import CRASHED, DONE, FAILED, GIB, RUNNING, WAITING
from benchmarks.questions import Ask

PEAK, STEADY, RELEASED, GONE = "peak", "steady", "released", "gone"


class Step(NamedTuple):
    """Something that happens to a pod, and the state that it must be in after it."""

    text: str
    states: Mapping[str, str]
    expected: str
    phase: str = "Running"


class Held(NamedTuple):
    """Slots and GiB on one card."""

    slots: int
    gib: int

    def __str__(self) -> str:
        return f"{self.gib} GiB in {self.slots} slots"


class Story(NamedTuple):
    """One pod from its creation to its end."""

    name: str
    title: str
    asks: tuple[Ask, ...]
    peak: tuple[Held, ...]
    """One entry per card, the largest first."""
    steady: tuple[Held, ...]
    steps: tuple[Step, ...]
    cards: tuple[int, ...] = ()
    """The cards of its node with which another scheduler has bound the pod; empty: the extender places it."""


def sidecar(name: str, gib: int) -> Ask:
    return Ask("sidecar", name, 1, gib * GIB, 0)


def init(name: str, gib: int) -> Ask:
    return Ask("init", name, 1, gib * GIB, 0)


def app(name: str, gib: int) -> Ask:
    return Ask("app", name, 1, gib * GIB, 0)


def _pending(text: str, states: Mapping[str, str], expected: str) -> Step:
    return Step(text, states, expected, "Pending")


def _end(*names: str) -> tuple[Step, ...]:
    return (
        Step("pod succeeds", dict.fromkeys(names, DONE), RELEASED, "Succeeded"),
        Step("pod deleted", {}, GONE),
    )


STORIES: Final = (
    Story(
        "sidecar-and-app",
        "A sidecar runs beside the app: 10 + 10 = 20 GiB, from the start to the end",
        (sidecar("cache", 10), app("server", 10)),
        (Held(2, 20),),
        (Held(2, 20),),
        (
            _pending("bound", {}, STEADY),
            _pending("sidecar starts", {"cache": RUNNING}, STEADY),
            Step("app starts", {"server": RUNNING}, STEADY),
            Step("sidecar exits", {"cache": DONE}, STEADY),
            Step("sidecar is back", {"cache": RUNNING}, STEADY),
            *_end("cache", "server"),
        ),
    ),
    Story(
        "sidecar-init-app",
        "The init runs beside the sidecar before it: 2 + 20 = 22 GiB, then 2 + 10 = 12",
        (sidecar("metrics", 2), init("warm-up", 20), app("server", 10)),
        (Held(2, 22),),
        (Held(2, 12),),
        (
            _pending("bound", {}, PEAK),
            _pending("sidecar, init run", {"metrics": RUNNING, "warm-up": RUNNING}, PEAK),
            _pending("sidecar crashes", {"metrics": CRASHED}, PEAK),
            _pending("sidecar is back", {"metrics": RUNNING}, PEAK),
            _pending("init fails", {"warm-up": FAILED}, PEAK),
            _pending("init is retried", {"warm-up": RUNNING}, PEAK),
            _pending("init succeeds", {"warm-up": DONE}, STEADY),
            Step("app starts", {"server": RUNNING}, STEADY),
            *_end("metrics", "server"),
        ),
    ),
    Story(
        "init-then-sidecar",
        "The same containers, the init first: it never meets the sidecar. 20 GiB, then 12",
        (init("warm-up", 20), sidecar("metrics", 2), app("server", 10)),
        (Held(2, 20),),
        (Held(2, 12),),
        (
            _pending("bound", {}, PEAK),
            _pending("init runs", {"warm-up": RUNNING}, PEAK),
            _pending("init succeeds", {"warm-up": DONE}, STEADY),
            _pending("sidecar starts", {"metrics": RUNNING}, STEADY),
            Step("app starts", {"server": RUNNING}, STEADY),
            _pending("sandbox is lost", {"warm-up": RUNNING, "metrics": WAITING, "server": WAITING}, PEAK),
            _pending("init succeeds", {"warm-up": DONE}, STEADY),
            Step("all run again", {"metrics": RUNNING, "server": RUNNING}, STEADY),
            *_end("metrics", "server"),
        ),
    ),
    Story(
        "interleaved",
        "Each init meets only the sidecars before it: max(2 + 5, 2 + 3 + 7) = 12 GiB, then 2 + 3 + 4 = 9",
        (sidecar("cache", 2), init("extract", 5), sidecar("proxy", 3), init("convert", 7), app("server", 4)),
        (Held(3, 12),),
        (Held(3, 9),),
        (
            _pending("bound", {}, PEAK),
            _pending("first init runs", {"cache": RUNNING, "extract": RUNNING}, PEAK),
            _pending("first succeeds", {"extract": DONE}, PEAK),
            _pending("second init runs", {"proxy": RUNNING, "convert": RUNNING}, PEAK),
            _pending("sidecar exits", {"cache": DONE}, PEAK),
            _pending("sidecar is back", {"cache": RUNNING}, PEAK),
            _pending("second succeeds", {"convert": DONE}, STEADY),
            Step("app starts", {"server": RUNNING}, STEADY),
            *_end("cache", "proxy", "server"),
        ),
    ),
    Story(
        "init-and-app",
        "Init and app share one card, so the app's memory is part of the init's: 20 GiB, then 10",
        (init("warm-up", 20), app("server", 10)),
        (Held(1, 20),),
        (Held(1, 10),),
        (
            _pending("bound", {}, PEAK),
            _pending("init runs", {"warm-up": RUNNING}, PEAK),
            _pending("init succeeds", {"warm-up": DONE}, STEADY),
            Step("app starts", {"server": RUNNING}, STEADY),
            *_end("server"),
        ),
    ),
    Story(
        "two-cards",
        "Nothing is merged across cards: the init's 20 GiB and the app's 10 are held side by side",
        (init("warm-up", 20), app("server", 10)),
        (Held(1, 20), Held(1, 10)),
        (Held(1, 10),),
        (
            _pending("bound", {}, PEAK),
            _pending("init runs", {"warm-up": RUNNING}, PEAK),
            _pending("init succeeds", {"warm-up": DONE}, STEADY),
            Step("app starts", {"server": RUNNING}, STEADY),
            *_end("server"),
        ),
        cards=(0, 1),
    ),
)
