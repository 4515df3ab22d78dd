"""Finds where a text is still kept: it walks through everything that an object of this project holds.

It exists because no count shows an unknown leak. It must not know which containers there are. Invariant: it visits
every key and value of every container, and every attribute of the project's own objects.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

_OURS = ("accounting.", "extender.")


def paths_to(text: str, root: object) -> list[str]:
    """Return the paths that lead from an object to a text."""
    found: list[str] = []
    known: set[int] = set()
    waiting: deque[tuple[str, object]] = deque([(type(root).__name__, root)])
    while waiting:
        path, value = waiting.popleft()
        if isinstance(value, str):
            if value == text:
                found.append(path)
            continue
        if id(value) not in known:
            known.add(id(value))
            waiting.extend((f"{path}{step}", each) for step, each in _held_by(value))
    return found


def _held_by(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield f"[key {key!r}]", key
            yield f"[{key!r}]", each
    elif isinstance(value, list | tuple | deque | AbstractSet):
        for number, each in enumerate(value):
            yield f"[{number}]", each
    if type(value).__module__.startswith(_OURS):
        names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        for name in {*names, *getattr(value, "__dict__", ())}:
            if hasattr(value, name):
                yield f".{name}", getattr(value, name)
