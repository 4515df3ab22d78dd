"""Reading objects of an API server, however deeply they are nested.

Why it exists: kube-apiserver keeps metadata.managedFields of nearly 10,000 levels, and who may create a pod chooses how
many. CPython 3.11 decodes about 1,000 levels and 3.12 about 1,500, so one such pod would hide the whole list that it is
in. It must not know objects. Invariants: no field that is read lies as deeply as what is left out; of a text that is no
JSON nothing is promised. Source: the limit is that of sigs.k8s.io/json.
"""

from typing import TypeVar

import msgspec
import numpy as np

T = TypeVar("T")
#: Well below what any supported interpreter decodes, and above all that an object of Kubernetes means anything by.
_MOST_LEVELS = 250
_QUOTE, _OPENS, _CLOSES = ord('"'), tuple(b"[{"), tuple(b"]}")


def read_json(text: "bytes | msgspec.Raw", kind: type[T]) -> T:
    """Decode a text; where it is nested too deeply, null is read. Raises `msgspec.DecodeError`."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        return msgspec.json.decode(shallow(bytes(text)), type=kind)


def read_with(decoder: msgspec.json.Decoder[T], text: "bytes | msgspec.Raw") -> T:
    """Decode a text as `read_json` does. Raises `msgspec.DecodeError`."""
    try:
        return decoder.decode(text)
    except RecursionError:
        return decoder.decode(shallow(bytes(text)))


def shallow(text: bytes) -> bytes:
    """Return a JSON text with null for every array and object that lies within 250 others."""
    data = np.frombuffer(text.replace(rb"\\", b"  ").replace(rb"\"", b"  "), np.uint8)
    outside = np.cumsum(data == _QUOTE, dtype=np.int32) % 2 == 0
    opens = outside & np.isin(data, _OPENS)
    closes = outside & np.isin(data, _CLOSES)
    levels = np.cumsum(opens.astype(np.int8) - closes.astype(np.int8), dtype=np.int32)
    starts = np.flatnonzero(opens & (levels == _MOST_LEVELS + 1)).tolist()
    ends = np.flatnonzero(closes & (levels == _MOST_LEVELS)).tolist()
    if len(starts) > len(ends):
        # The text ends within; what is left is no JSON either.
        ends.append(len(text) - 1)
    kept, parts = 0, list[bytes]()
    for start, end in zip(starts, ends, strict=True):
        parts += text[kept:start], b"null"
        kept = end + 1
    return b"".join((*parts, text[kept:]))
