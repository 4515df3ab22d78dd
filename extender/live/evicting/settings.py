"""How evicting behaves, with the reasons.

It must not know what is evicted.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EvictSettings:
    """Rates and times."""

    evicts: bool = False
    """Off: whoever turns it on lets this process end pods."""
    per_minute: int = 30
    """Evictions in any minute; 0 stops them."""
    stop_file: str | None = None
    """While this file exists, nobody is evicted."""
    timeout_seconds: float = 300.0
    """A preemption that has not brought its pod to a node by then is given up. Victims may take their grace period."""
    settle_seconds: float = 2.0
    """From a refusal to the first look: within that time kube-scheduler says whether it evicts by itself."""
    look_seconds: float = 0.5
    """Between two looks at a preemption under way, and at the queue."""
    again_seconds: tuple[float, float] = (10.0, 300.0)
    """First and longest pause before a pod is looked at again for which nobody could go, or that was given up."""
    wait_seconds: float = 2.0
    """Before a pod is looked at again for which waiting is enough."""
    backoff_seconds: tuple[float, float] = (1.0, 30.0)
    """First and longest pause after an eviction that was not accepted."""
    request_seconds: float = 5.0
    at_once: int = 8
    """Preemptions under way."""
    remembered: int = 1_000
    """Refused pods that are remembered; each takes a bit for every node."""
    share_of_loop: float = 0.25
    """Of the time in which it chooses, that much is its own; the verbs have the rest."""
