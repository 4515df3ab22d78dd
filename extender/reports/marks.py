"""What is the matter with a card, in the words that the page, the commands and the API have for it.

It must not judge; it reads an entry of verify. Invariant: each word has one meaning everywhere.
"""

from collections.abc import Mapping
from typing import Any

from extender.convert import InputError

#: What is wrong with a card, and what keeps pods away from it on purpose.
WRONG = ("orphaned", "over-committed", "blocked", "unhealthy")
MARKS = (*WRONG, "cordoned", "exclusive")
_ANY = "any"


def card_marks(card: Mapping[str, Any]) -> list[str]:
    """Return the marks of a card, in the order of `MARKS`. `card`: as in verify."""
    holds = {
        "orphaned": not card["registered"],
        "over-committed": card["overcommitted"],
        "blocked": bool(card["blocked"]),
        "unhealthy": card["registered"] and not card["healthy"],
        "cordoned": card["cordoned"],
        "exclusive": card["exclusive"],
    }
    return [mark for mark in MARKS if holds[mark]]


def wanted_marks(word: str | None) -> frozenset[str] | None:
    """Read the parameter `problem`: a mark, or "any" for what is wrong; None for all cards. Raises `InputError`."""
    if word is None:
        return None
    if word not in (_ANY, *MARKS):
        raise InputError("problem", word or "(empty)", f"is none of {', '.join((_ANY, *MARKS))}")
    return frozenset(WRONG if word == _ANY else (word,))
