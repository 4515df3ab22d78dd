"""The settings of admission, documented where they are declared, with the reason for each default.

It must not read flags; `cli` does. Invariant: one frozen value per process.
"""

from dataclasses import dataclass
from enum import StrEnum

from accounting.vendor import Vendor
from extender.config import Settings

#: The name that the API server writes if a pod names no scheduler, before it asks any webhook.
DEFAULT_SCHEDULER = "default-scheduler"


class OtherScheduler(StrEnum):
    """How to treat a pod that asks for managed resources and names another scheduler."""

    RESPECT = "respect"
    REPLACE = "replace"
    DENY = "deny"


class Privileged(StrEnum):
    """How to treat a pod with a share and a privileged container, which can use every card of its node."""

    DENY = "deny"
    EXCLUSIVE = "exclusive"
    """Admitted if all its containers with cards ask for whole cards."""
    ALLOW = "allow"


class NearMiss(StrEnum):
    """How to treat a resource name that is close to a managed one."""

    DENY = "deny"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """The settings of admission, apart from those of vendors."""

    scheduler_name: str = "gpu-scheduler"
    """The scheduler's name: the profile of manifests/scheduler."""
    other_scheduler: OtherScheduler = OtherScheduler.RESPECT
    """Respect by default, as HAMi's webhook: a pod that names a scheduler means it."""
    replace_default_scheduler: bool = True
    """A pod that names no scheduler arrives here with default-scheduler, which cannot give it cards."""
    default_count: int = 1
    """The count for a container that asks for memory or cores but no card; 0: such a container is denied."""
    privileged: Privileged = Privileged.DENY
    near_miss: NearMiss = NearMiss.DENY
    """Deny by default: with a misspelt memory limit the pod would get a whole card, or never be scheduled."""
    runtime_class: str = ""
    """The runtime class for pods with a share that name none; empty: none is set."""
    launcher_accounts: frozenset[str] = frozenset({"system:serviceaccount:kubevirt:kubevirt-controller"})
    """The accounts that create the pods of VMs. Filter checks the budgets of these, when the VMI may have listed
    them."""
    trusted_accounts: frozenset[str] = frozenset(
        {
            "system:serviceaccount:kube-system:gpu-extender",
            "system:serviceaccount:kube-system:hami-device-plugin",
        }
    )
    """The accounts that may write the scheduler's annotations: those of the scheduler and the node plugin."""


def managed_vendors(settings: Settings) -> tuple[Vendor, ...]:
    """Return the vendors whose resources are managed."""
    return settings.vendors
