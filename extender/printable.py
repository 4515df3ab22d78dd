"""Making foreign text safe for a terminal.

Why it exists: anybody can write annotations, names and bodies, and they are shown on terminals: escape codes would move
the cursor and hide lines, a line break would forge a line. It must not know where the text goes. Invariants: the result
is one line of printable characters; text of only such characters is returned unchanged, so doing it twice has the
effect of once.
"""


def printable(text: str) -> str:
    """Return a text with all unprintable characters escaped as in Python."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters, and how many there were if that is less than all."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
