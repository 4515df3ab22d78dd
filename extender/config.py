"""Settings, documented where they are declared, with the reason for each default.

It must not read files or flags; `cli` does. Invariant: one frozen value per process, made at the start.
"""

from dataclasses import dataclass, field

from accounting.policy import Policies
from accounting.register import ReservedMemory
from accounting.vendor import NVIDIA, Vendor


@dataclass(frozen=True, slots=True)
class HoldSource:
    """A custom resource whose objects are holds. The other fields are paths into an object, with dots.

    The defaults are those of `manifests/holds/crd.yaml`.
    """

    group: str
    version: str
    plural: str
    vmi: str = "spec.virtualMachineInstance"
    key: str = "spec.resourceName"
    units: str = "spec.units"
    node: str = "status.node"
    state: str = "status.state"

    @property
    def writes_status(self) -> bool:
        """Whether what is written is in the status, which is a subresource."""
        return self.node.startswith("status.")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the conversion of objects."""

    vendor: Vendor = NVIDIA
    """NVIDIA only by default, so that nothing changes for other cards until a flag turns them on."""
    policies: Policies = field(default_factory=Policies)
    """Defaults for pods without policy annotations: node binpack, card spread, as with HAMi's flags."""
    further_vendors: tuple[Vendor, ...] = ()
    """The enabled vendors after the first one."""
    reserved_memory: ReservedMemory = field(default_factory=ReservedMemory)
    """Nothing is held back by default, as in HAMi: what drivers and contexts need depends on them and on the cards."""

    raw_keys: tuple[str, ...] = ()
    """Extended resource names of whole devices that are counted, sorted. None, so that nothing changes for clusters
    where kube-scheduler alone counts them; these names must be in the stanza's managedResources."""
    ignore_unmapped: bool = False
    """A device of a GPU driver that a DRA claim has and that is no known card blocks its node: it may be any card."""

    hold_sets: bool = False
    """Whether passes decide on which node the devices of a VM are held together. Off, so that nothing is kept for a VM
    that no pod has asked for; what its spec and its node say counts all the same."""
    hold_source: HoldSource | None = None
    """None: what is held for a VM follows from its spec."""

    evicts: bool = False
    """Whether this extender evicts pods for others, and so whether its annotation on a preemptor keeps anything."""

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """All enabled vendors."""
        return (self.vendor, *self.further_vendors)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of the HTTP server."""

    bind_address: str = "127.0.0.1"
    """Loopback, because the extender runs beside kube-scheduler and the protocol has no authentication."""
    port: int = 8888
    max_body_bytes: int = 256 * 2**20
    """aiohttp's default of 1 MiB is exceeded by about 74 full Node objects; 5,000 of them are about 70 MB."""
    verbs_client_ca: str | None = None
    """None: plain HTTP. Otherwise TLS, and clients need a certificate of this authority."""
    webhook_client_ca: str | None = None
    """None: an API server shows no certificate unless its AdmissionConfiguration names one."""
    api_bind_address: str = "127.0.0.1"
    api_port: int | None = None
    """None: there is no such port. On loopback the lists are on the verbs' port as well."""
    api_connections: int = 128
    api_bytes_in_flight: int = 16 * 2**20
    webhook_bind_address: str = "127.0.0.1"
    """Loopback by default as well; it must be opened for the API server, which calls from elsewhere."""
    webhook_port: int = 9443
    """A separate port, so that clients that reach the webhooks cannot reach bind and the lists."""
    max_review_bytes: int = 8 * 2**20
    """A review has an object before and after, each at most the 3 MiB that an API server accepts in one request."""
    max_object_bytes: int = 2 * 2**20
    """Limit of bodies posted to /api/v1: an object has at most the 1.5 MiB that etcd stores."""
    verb_connections: int = 512
    """kube-scheduler opens one for every bind in flight."""
    verb_bytes_in_flight: int = 320 * 2**20
    """Enough for the largest body and for others beside it."""
    webhook_connections: int = 256
    """Each costs 256 KiB for TLS, so 64 MiB."""
    webhook_bytes_in_flight: int = 32 * 2**20
    """Enough for four of the largest reviews, or thousands of usual ones."""
    keepalive_seconds: float = 120.0
    """Longer than the 90 s for which Go's client keeps an idle connection, so that it never uses a closing one."""
    shutdown_seconds: float = 10.0
    """For requests in flight; below the usual 30 s of terminationGracePeriodSeconds."""
    allow_writes: bool = False
    """Whether requests may replace and delete pods that came from files; off, because clients are not authenticated."""
    remembered_pods: int = 10_000
    """The most pods known only from /filter; the oldest is forgotten first."""
    metrics_per_card: bool = False
    """Off by default: nine series per card are 720,000 at 10,000 nodes with 8 cards."""
    metrics_per_pod: bool = False
    """Off by default: pods come and go, and each leaves its series in Prometheus."""
    metrics_hami_names: bool = False
    """Off by default: seven series per card under the names of HAMi's scheduler, and seven under its older ones."""
