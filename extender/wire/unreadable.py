"""What reading a foreign text raises, and why a text was not read.

Why it exists: how deeply a text may be nested depends on the interpreter (CPython 3.11 counts levels, 3.14 measures its
stack), and so does what a RecursionError says; an answer must not. It must not know what is read. Invariant: the same
error gets the same words on every interpreter.
"""

import msgspec

#: What decoding raises for a text of another shape, or one that is nested too deeply.
UNREADABLE = (msgspec.DecodeError, RecursionError)
NESTED_TOO_DEEPLY = "is nested too deeply"


def why_unreadable(error: Exception, otherwise: str = "") -> str:
    """Return why a text was not read; `otherwise` precedes the error's own words."""
    return NESTED_TOO_DEEPLY if isinstance(error, RecursionError) else f"{otherwise}{error}"
