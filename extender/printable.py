"""Foreign text, made fit for a terminal.

Why it exists: annotations, names and bodies are written by anybody, and end up on the terminal of whoever looks: escape
codes would move the cursor and hide lines, a line break would forge one. It must not know where the text goes.
Invariants: what is returned is one line of characters that have a shape; text without others is returned unchanged, so
doing it twice does the same as once.
"""


def printable(text: str) -> str:
    """Return a text in which whatever has no shape is written as Python escapes it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def cut(text: str, most: int) -> str:
    """Return a text of at most `most` characters, and how many there were if that is less than all."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
