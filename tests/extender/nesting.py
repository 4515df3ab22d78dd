"""JSON that no supported interpreter reads, because it is nested too deeply.

It exists because how many levels are read depends on the interpreter: CPython 3.11 counts about 1,000; 3.14.8 measured
its stack, which had room for 24,852 levels that are kept and for 260,933 that are skipped. It must not know who reads.
Invariant: both texts pass every bound on length that stands before the reader.
"""

from typing import Final

LEVELS: Final = 1_000_000
#: For a body or a file, also where it is skipped.
NESTED: Final = b"[" * LEVELS + b"]" * LEVELS
#: For an annotation, of which more than 256 KiB are not read. It is kept, so less is too much.
NESTED_ANNOTATION: Final = "[" * 100_000
#: What is said of either.
SAID: Final = "is nested too deeply"
