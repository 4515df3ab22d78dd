"""Changes JSON so that it stays JSON.

It exists because bytes that are changed blindly are no JSON any more, and end in the decoder's first lines. It must not
know what is read. Invariant: what a change does follows from its seed.
"""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import atheris

#: What a field may hold that nobody thought of.
_STRANGE: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 0.5, 1e308, "", " ", "0", "-1", "1e400", "n1", "NaN", "\0",
    "a" * 300, "\ud800", "u", [], {}, [None], [[]], {"": None}, "GPU-n1-0", "nvidia.com/gpu", "1Ei", "0x1", "true",
)  # fmt: skip
_PLAIN_SHARE = 0.3


def mutated(data: bytes, most: int, seed: int) -> bytes:
    """Some bytes like these, at most so many; the first byte chooses, as everywhere."""
    chance = Random(seed)
    first, text = data[:1] or b"\0", data[1:]
    lines = text.split(b"\n")
    at = chance.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return bytes(atheris.Mutate(data, most))
    if chance.random() < _PLAIN_SHARE:
        return bytes(atheris.Mutate(data, most))
    if chance.random() < 0.1:
        first = bytes([chance.randrange(8)])
    for _ in range(chance.choice((1, 1, 2, 4))):
        value = _changed(value, chance)
    lines[at] = json.dumps(value, separators=(",", ":")).encode()
    if chance.random() < 0.1:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    found = first + b"\n".join(lines)
    return found if len(found) <= most else data


def _changed(value: Any, chance: Random) -> Any:  # noqa: ANN401 - a JSON tree
    """The tree with one place changed."""
    places = list(_places(value))
    if not places or chance.random() < 0.02:
        return chance.choice(_STRANGE)
    holder, key = chance.choice(places)
    what = chance.random()
    if what < 0.2:
        del holder[key]
    elif what < 0.5:
        holder[key] = chance.choice(_STRANGE)
    elif what < 0.7:
        other, its = chance.choice(places)
        # Through text, so that no tree holds itself.
        if its in other if isinstance(other, dict) else its < len(other):
            holder[key] = json.loads(json.dumps(other[its]))
    elif isinstance(holder[key], str):
        holder[key] = _text(holder[key], chance)
    elif isinstance(holder, list):
        holder.insert(key, chance.choice(_STRANGE))
    else:
        holder[f"{key}{chance.choice(('', 's', ' '))}".swapcase()] = holder[key]
    return value


def _text(text: str, chance: Random) -> str:
    at = chance.randrange(len(text) + 1)
    piece = chance.choice((",", ":", ";", "=", "-", "0", "9", "[", "]", "{}", "\0", "é", " ", text))
    return text[:at] + piece + text[at + chance.randrange(2) :]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - a JSON tree
    """Every place of a tree: what holds it, and under which key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in list(items):
        yield value, key
        yield from _places(each)
