"""Whether a vendor's plugin on a node still runs, by the handshake in its node annotation.

Why it exists: the scheduler asks some plugins with `Requesting_<time>`, and they answer with `Reported_<time>`. A
plugin that is gone leaves its register behind, but nothing serves its cards any more. It must not know clocks or how
times are written. Invariant: a value that cannot be understood changes nothing. Source: HAMi v2.10 CheckHealth, where
`Deleted_<time>` was never left (HAMi#1839, HAMi#1843) and a bare `Requesting` stopped the process (HAMi#1964).
"""

from typing import NamedTuple

REQUESTING, DELETED = "Requesting", "Deleted"
#: How long a plugin has to answer.
ANSWER_SECONDS = 60


class Handshake(NamedTuple):
    """What an annotation says."""

    healthy: bool
    """The plugin lives, so its cards take pods."""
    ask: bool
    """It is to be asked again, by writing `Requesting_<time>`."""


def judge(
    text: str, requested_at: int | None, now: int, allocatable: int | None, *, was_healthy: bool = True
) -> Handshake:
    """Judge a handshake annotation ("": absent). Times are Unix seconds.

    `requested_at`: the time in a `Requesting_<time>`, None if there is none that can be read. `allocatable`: what the
    kubelet allows of the vendor's count resource, None if it does not say. `was_healthy`: the judgement before.
    """
    if REQUESTING in text:
        if requested_at is None:
            return Handshake(was_healthy, ask=False)
        answered_late = now >= requested_at + ANSWER_SECONDS and not allocatable
        return Handshake(not answered_late, ask=False)
    if text.startswith(DELETED):
        # The plugin was given up. Ask it again, it may be back; until it answers, only the kubelet's count tells.
        return Handshake(was_healthy if allocatable is None else allocatable > 0, ask=True)
    return Handshake(healthy=True, ask=True)
