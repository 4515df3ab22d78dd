"""How pods are admitted, documented where it is declared, with the reason for each default.

It must not read flags; `cli` does. Invariant: one frozen value per process.
"""

from dataclasses import dataclass
from enum import StrEnum

from accounting.vendor import Vendor
from extender.config import Settings

#: What the API server writes where a pod names no scheduler, before any webhook is asked.
DEFAULT_SCHEDULER = "default-scheduler"


class OtherScheduler(StrEnum):
    """What happens to a pod that asks for managed resources and names another scheduler."""

    RESPECT = "respect"
    REPLACE = "replace"
    DENY = "deny"


class Privileged(StrEnum):
    """What happens to a pod with a share and a privileged container, which sees every card of its node."""

    DENY = "deny"
    EXCLUSIVE = "exclusive"
    """Admitted if all its containers take their cards for themselves."""
    ALLOW = "allow"


class NearMiss(StrEnum):
    """What happens to a resource name that nearly is a managed one."""

    DENY = "deny"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """What admission depends on beside the vendors' own settings."""

    scheduler_name: str = "gpu-scheduler"
    """The profile of manifests/scheduler."""
    other_scheduler: OtherScheduler = OtherScheduler.RESPECT
    """As HAMi's webhook: whoever names a scheduler means it."""
    replace_default_scheduler: bool = True
    """A pod that names none arrives here as default-scheduler, which cannot give it cards."""
    default_count: int = 1
    """Cards of a container that asks for memory or cores but no card; 0: none, such a container is denied."""
    privileged: Privileged = Privileged.DENY
    near_miss: NearMiss = NearMiss.DENY
    """A misspelt memory limit is no limit: the pod would get a whole card, or never be scheduled."""
    runtime_class: str = ""
    """Set on pods with a share that name none; empty: left alone."""
    launcher_accounts: frozenset[str] = frozenset({"system:serviceaccount:kubevirt:kubevirt-controller"})
    """Who creates the pods of VMs. Their budgets are judged in filter, where the VMI may have listed them."""
    trusted_accounts: frozenset[str] = frozenset(
        {
            "system:serviceaccount:kube-system:gpu-extender",
            "system:serviceaccount:kube-system:hami-device-plugin",
        }
    )
    """Who may write the scheduler's own annotations: the scheduler and the node plugin."""


def managed_vendors(settings: Settings) -> tuple[Vendor, ...]:
    """Return the vendors whose resources are managed."""
    return settings.vendors
