"""Keeps the few texts that together reach every line that any of many texts reaches.

It exists because a fuzzer keeps thousands, and a test has to be quick. It must not know what is read. Invariant: the
shortest texts are taken first, so equal texts give an equal choice.
"""

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

_ROOMS = ("/accounting/", "/extender/")
_Place = tuple[str, int, int]


def reduced(texts: Iterable[bytes], read: Callable[[bytes], object], known: Iterable[bytes] = ()) -> list[bytes]:
    """Return the texts that reach lines which the known ones and those before them do not."""
    reached: set[_Place] = set()
    for text in known:
        reached |= _lines(text, read)
    chosen = []
    for text in sorted(set(texts), key=lambda each: (len(each), each)):
        lines = _lines(text, read)
        if not lines <= reached:
            reached |= lines
            chosen.append(text)
    return chosen


def _lines(text: bytes, read: Callable[[bytes], object]) -> set[_Place]:
    """Return the steps from line to line that reading a text takes, in the project's own files."""
    found: set[_Place] = set()

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:  # noqa: ANN401 - as the interpreter calls it
        name = frame.f_code.co_filename
        if not any(room in name for room in _ROOMS) or "/site-packages/" in name or "/tests/" in name:
            return None
        last = 0

        def step(inside: FrameType, _event: str, _argument: Any) -> Any:  # noqa: ANN401 - the same
            nonlocal last
            found.add((name, last, inside.f_lineno))
            last = inside.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        read(text)
    finally:
        sys.settrace(before)
    return found
