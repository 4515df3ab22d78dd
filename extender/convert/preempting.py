"""The annotation on a pod for which the extender evicts others: where it waits, until when, and who is to go.

Why it exists: what comes free must still be kept for the pod after a restart, so it is written before the first
eviction and read back from the object. It must not do I/O. Invariants: what was written is what is read; a text that
nobody here has written keeps nothing.
"""

import sys
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from accounting.pod import Preempting
from extender.convert.annotations import PREEMPTING
from extender.wire.names import why_no_subdomain

#: Of a longer text nothing is read: it is not one of ours.
_LONGEST = 16_384
#: Victims beyond these are evicted all the same, but what they free is kept only once they leave.
_MOST_VICTIMS = 256


class _Written(msgspec.Struct):
    node: str
    until: datetime
    victims: list[str] = []


_decoder = msgspec.json.Decoder(_Written)


def preempting_of(annotations: Mapping[str, str]) -> Preempting | None:
    """Return what a pod's annotations say."""
    text = annotations.get(PREEMPTING)
    if not text or len(text) > _LONGEST:
        return None
    try:
        written = _decoder.decode(text)
        until = int(written.until.astimezone(UTC).timestamp())
    except (msgspec.DecodeError, OverflowError, ValueError):
        return None
    if why_no_subdomain(written.node):
        return None
    return Preempting(sys.intern(written.node), until, tuple(written.victims))


def preempting_text(preempting: Preempting) -> str:
    """Return the annotation's text."""
    until = datetime.fromtimestamp(preempting.until, UTC)
    victims = list(preempting.victims[:_MOST_VICTIMS])
    return msgspec.json.encode(_Written(preempting.node, until, victims)).decode()
