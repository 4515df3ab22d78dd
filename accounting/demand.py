"""What a pod asks of cards: all that decides which cards could take it, and nothing else of the pod.

Why it exists: whatever is remembered of a pod is remembered for others that ask for the same. Whoever judges is given a
`Demand` and not the pod, so a memory that is keyed by the demand cannot forget a field that its answer follows from.
It must not know who the pod is, where it is and what it holds. Invariants: pods made from one template have equal
demands; equal demands fit the same cards of the same state. What decides beside it, where that may differ between two
questions, stands in a named key next to it (`accounting.answers.claims.PlacementKey`, `QuotaKey` here).
"""

from typing import NamedTuple

from accounting.pod import ContainerKind, DeviceRequest, Pod
from accounting.policy import Policies
from accounting.quota_scope import PodScope
from accounting.selection import Selection


class ContainerDemand(NamedTuple):
    """What one container asks for, and how long it holds it."""

    kind: ContainerKind
    request: DeviceRequest | None = None
    """None: it asks for no card."""
    further_requests: tuple[DeviceRequest, ...] = ()
    """What it asks of the cards of other vendors, one request per vendor."""

    @property
    def requests(self) -> tuple[DeviceRequest, ...]:
        """Everything that it asks for."""
        return () if self.request is None else (self.request, *self.further_requests)

    def of_vendor(self, vendor: str) -> "ContainerDemand":
        """Return what it asks of one vendor's cards."""
        return ContainerDemand(self.kind, next((each for each in self.requests if each.vendor == vendor), None))


class Demand(NamedTuple):
    """What a pod asks for. A tuple, since every question makes one and looks it up: 2 microseconds together."""

    containers: tuple[ContainerDemand, ...]
    """In the order of `Pod.containers`."""
    selection: Selection
    policies: Policies
    further_selections: tuple[Selection, ...] = ()
    """Of a pod that asks for cards of several vendors: the selections of those after `selection`'s."""
    is_valid: bool = True
    """Whether everything that it asks for can be used; else no card is given."""

    @classmethod
    def of(cls, pod: Pod) -> "Demand":
        """Return what a pod asks for."""
        return cls(
            tuple([ContainerDemand(each.kind, each.request, each.further_requests) for each in pod.containers]),
            pod.selection,
            pod.policies,
            pod.further_selections,
            not pod.invalid,
        )

    @property
    def parts(self) -> tuple["Demand", ...]:
        """What it asks of each vendor's cards, in the order of its selections; itself if it asks one vendor only.

        Every part keeps all containers, so positions stay the same.
        """
        if not self.further_selections:
            return (self,)
        return tuple(
            Demand(
                tuple([each.of_vendor(selection.vendor) for each in self.containers]),
                selection,
                self.policies,
                is_valid=self.is_valid,
            )
            for selection in (self.selection, *self.further_selections)
        )


class QuotaKey(NamedTuple):
    """By what quotas tell pods apart: those with equal keys are counted by the same quotas."""

    namespace: str
    scope: PodScope

    @classmethod
    def of(cls, pod: Pod) -> "QuotaKey":
        """Return a pod's key."""
        return cls(pod.namespace, pod.scope)
