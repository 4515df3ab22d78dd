"""How many values a body may have.

Why it exists: decoding costs time per value, not per byte, and a JSON value can be two bytes long: 10 MB of `"a",`
block the event loop as long as 100 MB of Kubernetes objects. It must not decode. Invariant: a body of kube-scheduler is
never refused: its objects have a comma every 29 to 42 bytes (recorded bodies), and lists of names are short.
"""

import numpy as np

_COMMA = ord(",")
#: Shorter bodies are read in a few milliseconds, whatever they contain.
_UNCHECKED_BYTES = 2**20
_COUNTED_AT_ONCE = 2**20
#: Enough for a list of names, twelve bytes each, of ten times as many nodes as Kubernetes supports.
_FREE_VALUES = 100_000
_BYTES_PER_VALUE = 24


def most_values(length: int) -> int:
    """Return how many values a body of so many bytes may have."""
    return _FREE_VALUES + length // _BYTES_PER_VALUE


def why_too_dense(body: bytes) -> str | None:
    """Return why a body has too many values for its length; None if it has not."""
    if len(body) <= _UNCHECKED_BYTES:
        return None
    data, most = np.frombuffer(body, np.uint8), most_values(len(body))
    starts = range(0, len(body), _COUNTED_AT_ONCE)
    values = sum(int(np.count_nonzero(data[start : start + _COUNTED_AT_ONCE] == _COMMA)) for start in starts)
    return f"has {values} values; of {len(body)} bytes at most {most} are read" if values > most else None
