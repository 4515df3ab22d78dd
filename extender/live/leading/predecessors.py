"""Proof that earlier processes of this pod have ended.

Why it exists: a Lease says only how long to wait for its holder, but a process that was killed and restarted in the
same pod need not wait for itself. It must not know the Lease. Invariants: every name in the file was written by a
process that held the file's lock, and the lock ends with its process, so the present holder knows that all others have
ended; a file that is locked, of another pod or unreadable proves nothing. The file must be in a volume of this pod
alone (an emptyDir) and on a local disk, because locks of network file systems may outlive or forget their holders.
"""

import fcntl
import os
from typing import Self

import msgspec

from extender.live.leading.lease import Term
from extender.logs import logger

_LONGEST_BYTES = 2**16
#: Identities that are kept; there are never more restarts than this within one lease.
_MOST_IDENTITIES = 50


class _Known(msgspec.Struct):
    pod_uid: str
    identities: list[str]
    led: Term | None = None


class Predecessors:
    """The processes that held the file's lock before this one. This process holds it until it ends."""

    def __init__(self, file: int, known: _Known) -> None:
        self._file = file
        self._known = known
        self.gone = frozenset(known.identities)
        """Identities on the Lease whose processes have ended."""
        self.led = known.led
        """The last term in which one of them led."""

    @classmethod
    def take(cls, path: str, pod_uid: str, identity: str) -> Self | None:
        """Take the lock, and note that this process held it as `identity`; None if another process holds it.

        Raises OSError if the file cannot be opened or written.
        """
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            logger().warning("another process holds the lock, so nothing tells that it has ended", file=path)
            return None
        known = _read(file, pod_uid)
        taken = cls(file, known)
        taken._write(_Known(pod_uid, [*known.identities, identity][-_MOST_IDENTITIES:], known.led))
        return taken

    def note_led(self, term: Term) -> None:
        """Note that this process leads in that term, and that no write of another process can arrive in it."""
        self._write(_Known(self._known.pod_uid, self._known.identities, term))

    def close(self) -> None:
        """Release the lock, as the end of the process does."""
        os.close(self._file)

    def _write(self, known: _Known) -> None:
        self._known = known
        text = msgspec.json.encode(known)
        # Written in place, because the lock is on the file, not on its name. A truncated text does not decode and
        # proves nothing.
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text, 0)


def _read(file: int, pod_uid: str) -> _Known:
    try:
        known = msgspec.json.decode(os.pread(file, _LONGEST_BYTES, 0), type=_Known)
    except msgspec.DecodeError:
        return _Known(pod_uid, [])
    return known if known.pod_uid == pod_uid else _Known(pod_uid, [])
