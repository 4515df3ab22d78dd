"""Settings, documented where they are declared, with the reason for each default.

It must not read files or flags; `cli` does. Invariant: one frozen value per process, made at the start.
"""

from dataclasses import dataclass, field

from accounting.policy import Policies
from accounting.register import ReservedMemory
from accounting.vendor import NVIDIA, Vendor


@dataclass(frozen=True, slots=True)
class Settings:
    """What the conversion of objects depends on."""

    vendor: Vendor = NVIDIA
    """NVIDIA alone, so that a cluster with other cards sees nothing change before somebody says that it should."""
    policies: Policies = field(default_factory=Policies)
    """Defaults for pods without policy annotations: node binpack, card spread, as HAMi's flags default."""
    further_vendors: tuple[Vendor, ...] = ()
    """Vendors that are on beside the first one."""
    reserved_memory: ReservedMemory = field(default_factory=ReservedMemory)
    """Nothing is held back, as in HAMi: how much drivers and contexts take depends on them and on the cards."""

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """Every vendor that is on."""
        return (self.vendor, *self.further_vendors)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the HTTP server depends on."""

    bind_address: str = "127.0.0.1"
    """Loopback: the extender is meant to run beside kube-scheduler, and the protocol has no authentication."""
    port: int = 8888
    max_body_bytes: int = 256 * 2**20
    """aiohttp's default of 1 MiB is passed at about 74 full Node objects; 5,000 of them are about 70 MB."""
    webhook_bind_address: str = "127.0.0.1"
    """Loopback as well, until somebody opens it: the API server calls from elsewhere."""
    webhook_port: int = 9443
    """A port of its own: bind and the lists must not be reachable for everybody who can reach the webhooks."""
    max_review_bytes: int = 16 * 2**20
    """A review holds an object before and after, each at most the 1.5 MiB that etcd takes, and some more as JSON."""
    keepalive_seconds: float = 120.0
    """Above the 90 s for which Go's client keeps an idle connection, so that it never meets a closing one."""
    shutdown_seconds: float = 10.0
    """For requests in flight; below the usual 30 s of terminationGracePeriodSeconds."""
    remembered_pods: int = 10_000
    """Pods seen in /filter that were never bound or posted; the oldest is forgotten first."""
    metrics_per_card: bool = False
    """Nine series per card: at 10,000 nodes with 8 cards 720,000 of them, so not by default."""
    metrics_per_pod: bool = False
    """Pods come and go, and each leaves its series behind in Prometheus."""
    metrics_hami_names: bool = False
    """Seven series per card under the names of HAMi's scheduler, and seven under its older ones."""
