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

    evicts: bool = False
    """Whether this extender evicts pods for others, and so whether its annotation on a preemptor keeps anything."""

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
    verbs_client_ca: str | None = None
    """None: plain HTTP. Else TLS, and a client needs a certificate of this authority."""
    webhook_client_ca: str | None = None
    """None: an API server shows no certificate unless its AdmissionConfiguration names one."""
    api_bind_address: str = "127.0.0.1"
    api_port: int | None = None
    """None: there is no such port. On loopback the lists are on the verbs' port as well."""
    api_connections: int = 128
    api_bytes_in_flight: int = 16 * 2**20
    webhook_bind_address: str = "127.0.0.1"
    """Loopback as well, until somebody opens it: the API server calls from elsewhere."""
    webhook_port: int = 9443
    """A port of its own: bind and the lists must not be reachable for everybody who can reach the webhooks."""
    max_review_bytes: int = 8 * 2**20
    """A review holds an object before and after, each at most the 3 MiB that an API server takes in one request."""
    max_object_bytes: int = 2 * 2**20
    """Of what is posted to /api/v1: an object has at most the 1.5 MiB that etcd takes."""
    verb_connections: int = 512
    """kube-scheduler opens one for every bind in flight."""
    verb_bytes_in_flight: int = 320 * 2**20
    """The largest body, and room for others beside it."""
    webhook_connections: int = 256
    """Each costs 256 KiB for TLS, so 64 MiB."""
    webhook_bytes_in_flight: int = 32 * 2**20
    """Four of the largest reviews, or thousands of usual ones."""
    keepalive_seconds: float = 120.0
    """Above the 90 s for which Go's client keeps an idle connection, so that it never meets a closing one."""
    shutdown_seconds: float = 10.0
    """For requests in flight; below the usual 30 s of terminationGracePeriodSeconds."""
    allow_writes: bool = False
    """Whether requests may replace and delete pods that came from files: who reaches the port needs no name."""
    remembered_pods: int = 10_000
    """Pods seen in /filter that were never bound or posted; the oldest is forgotten first."""
    metrics_per_card: bool = False
    """Nine series per card: at 10,000 nodes with 8 cards 720,000 of them, so not by default."""
    metrics_per_pod: bool = False
    """Pods come and go, and each leaves its series behind in Prometheus."""
    metrics_hami_names: bool = False
    """Seven series per card under the names of HAMi's scheduler, and seven under its older ones."""
