"""Changes JSON so that it stays JSON.

It exists because blindly changed bytes are no longer JSON, and get no further than the decoder. It must not know what
is read, nor who asks. Invariant: what a change does follows from its seed.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

#: Values that a field may unexpectedly hold.
_STRANGE: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, 1e308, "", " ", "0", "-1", "1e400", "n1", "NaN",
    "\0", "a" * 300, "\ud800", "u", [], {}, [None], [[]], {"": None}, "GPU-n1-0", "nvidia.com/gpu", "1Ei", "0x1",
)  # fmt: skip
#: The share of changes that change bytes and not values.
_PLAIN_SHARE = 0.3
Plain = Callable[[bytes, int], bytes]


def mutated(data: bytes, most: int, seed: int, plain: Plain) -> bytes:
    """Return bytes like these, at most that many. `plain` changes bytes; the first byte chooses, as everywhere."""
    chance = Random(seed)
    first, lines = data[:1] or b"\0", data[1:].split(b"\n")
    at = chance.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return plain(data, most)
    if chance.random() < _PLAIN_SHARE:
        return plain(data, most)
    if chance.random() < 0.1:
        first = bytes([chance.randrange(8)])
    try:
        lines[at] = changed(value, chance)
    except RecursionError:
        # It is nested as deeply as the reader allows.
        return plain(data, most)
    if chance.random() < 0.1:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    found = first + b"\n".join(lines)
    return found if len(found) <= most else data


def damaged(data: bytes, chance: Random) -> bytes:
    """Return the bytes with a piece cut out, doubled or replaced."""
    at, until = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    until = min(until, at + 40) if chance.random() < 0.7 else until
    piece = chance.choice((b"", data[at:until] * 2, bytes(chance.randrange(256) for _ in range(chance.randrange(4)))))
    return data[:at] + piece + data[until:]


def changed(value: Any, chance: Random) -> bytes:  # noqa: ANN401 - a JSON tree
    """Return a tree with some places changed, as JSON. This changes the tree itself."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        value = _changed(value, chance)
    return json.dumps(value, separators=(",", ":")).encode()


def _changed(value: Any, chance: Random) -> Any:  # noqa: ANN401 - a JSON tree
    """Return the tree with one place changed."""
    places = list(_places(value))
    if not places or chance.random() < 0.02:
        return _strange(chance)
    holder, key = chance.choice(places)
    what = chance.random()
    if what < 0.2:
        del holder[key]
    elif what < 0.5:
        holder[key] = _strange(chance)
    elif what < 0.7:
        other, its = chance.choice(places)
        # A copy by way of text, so that no tree contains itself.
        if its in other if isinstance(other, dict) else its < len(other):
            holder[key] = json.loads(json.dumps(other[its]))
    elif isinstance(holder[key], str):
        holder[key] = _text(holder[key], chance)
    elif isinstance(holder, list):
        holder.insert(key, _strange(chance))
    else:
        holder[f"{key}{chance.choice(('', 's', ' '))}".swapcase()] = holder[key]
    return value


def _strange(chance: Random) -> Any:  # noqa: ANN401 - a JSON tree
    """Return a value of its own: what is changed in it later changes no other tree."""
    return deepcopy(chance.choice(_STRANGE))


def _text(text: str, chance: Random) -> str:
    at = chance.randrange(len(text) + 1)
    piece = chance.choice((",", ":", ";", "=", "-", "0", "9", "[", "]", "{}", "\0", "é", " ", text))
    return text[:at] + piece + text[at + chance.randrange(2) :]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - a JSON tree
    """Return every place of a tree: its container, and its key there."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(items):
        yield value, key
        yield from _places(each)
