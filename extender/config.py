"""Settings, documented where they are declared, with the reason for each default.

It must not read files or flags; `cli` does. Invariant: one frozen value per process, made at the start.
"""

from dataclasses import dataclass, field

from accounting.policy import Policies
from accounting.vendor import NVIDIA, Vendor


@dataclass(frozen=True, slots=True)
class Settings:
    """What the conversion of objects depends on."""

    vendor: Vendor = NVIDIA
    policies: Policies = field(default_factory=Policies)
    """Defaults for pods without policy annotations: node binpack, card spread, as HAMi's flags default."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the HTTP server depends on."""

    bind_address: str = "127.0.0.1"
    """Loopback: the extender is meant to run beside kube-scheduler, and the protocol has no authentication."""
    port: int = 8888
    max_body_bytes: int = 256 * 2**20
    """aiohttp's default of 1 MiB is passed at about 74 full Node objects; 5,000 of them are about 70 MB."""
    keepalive_seconds: float = 120.0
    """Above the 90 s for which Go's client keeps an idle connection, so that it never meets a closing one."""
    shutdown_seconds: float = 10.0
    """For requests in flight; below the usual 30 s of terminationGracePeriodSeconds."""
    remembered_pods: int = 10_000
    """Pods seen in /filter that were never bound or posted; the oldest is forgotten first."""
