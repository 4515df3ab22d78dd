"""How much a body may hold beside its bytes.

Why it exists: decoding costs by value, not by byte, and two bytes of JSON can be a value: 10 MB of `"a",` hold the loop
as long as 100 MB of Kubernetes objects. It must not decode. Invariant: a body that kube-scheduler sends is never
refused: its objects have a comma every 29 to 42 bytes (recorded bodies), and lists of names are short.
"""

import numpy as np

_COMMA = ord(",")
#: Shorter bodies are read in a few milliseconds, whatever they hold.
_UNCHECKED_BYTES = 2**20
_COUNTED_AT_ONCE = 2**20
#: Names alone, twelve bytes each, of ten times as many nodes as Kubernetes supports.
_FREE_VALUES = 100_000
_BYTES_PER_VALUE = 24


def most_values(length: int) -> int:
    """Return how many values a body of so many bytes may hold."""
    return _FREE_VALUES + length // _BYTES_PER_VALUE


def why_too_dense(body: bytes) -> str | None:
    """Return why a body holds too many values for its length, or None."""
    if len(body) <= _UNCHECKED_BYTES:
        return None
    data, most = np.frombuffer(body, np.uint8), most_values(len(body))
    starts = range(0, len(body), _COUNTED_AT_ONCE)
    values = sum(int(np.count_nonzero(data[start : start + _COUNTED_AT_ONCE] == _COMMA)) for start in starts)
    return f"has {values} values; of {len(body)} bytes at most {most} are read" if values > most else None
