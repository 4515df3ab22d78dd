"""A pod's requests for managed resources, as written.

Why it exists: the webhooks must name the field that a person wrote, before it is converted. It must not decide.
Invariants: every container of the pod is read, inits and sidecars included; 0 means not requested; a value that is not
a quantity counts as requested, so that it is refused and not ignored.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accounting.errors import QuantityError
from accounting.quantity import Quantity, parse_quantity
from accounting.vendor import Vendor
from extender.wire import admission_v1, core_v1


class Written(NamedTuple):
    """A container of a pod under review."""

    list_name: str
    """initContainers or containers."""
    place: int
    container: core_v1.Container
    more: admission_v1.Container

    @property
    def name(self) -> str:
        """The container's name."""
        return self.container.name or ""

    @property
    def path(self) -> str:
        """The container's JSON pointer."""
        return f"/spec/{self.list_name}/{self.place}"

    @property
    def field(self) -> str:
        """The container's name in messages."""
        return f"spec.{self.list_name}[{self.name or self.place}]"

    @property
    def limits(self) -> Mapping[str, object]:
        """Its limits."""
        return (self.container.resources.limits if self.container.resources is not None else None) or {}

    @property
    def requests(self) -> Mapping[str, object]:
        """Its requests."""
        return (self.container.resources.requests if self.container.resources is not None else None) or {}

    def value(self, name: str) -> object:
        """Return a resource as written, limits before requests; None if it is absent."""
        return self.limits.get(name, self.requests.get(name))

    def field_of(self, name: str) -> str:
        """Return the field of a resource."""
        part = "requests" if name in self.requests and name not in self.limits else "limits"
        return f"{self.field}.resources.{part}[{name}]"

    def asks(self, name: str) -> bool:
        """Whether a resource is requested, in limits or requests."""
        return any(is_asked(part[name]) for part in (self.limits, self.requests) if name in part)

    def asks_of(self, vendor: Vendor) -> bool:
        """Whether any of a vendor's resources is requested."""
        return any(map(self.asks, vendor.resources))

    @property
    def is_privileged(self) -> bool:
        """Whether it is privileged, and so can use every device of its node."""
        context = self.more.securityContext
        return context is not None and bool(context.privileged)


def quantity(raw: object) -> Quantity | None:
    """Return a quantity; None if it is absent or not a quantity."""
    if raw is None:
        return None
    try:
        return parse_quantity(raw)
    except QuantityError:
        return None


def is_asked(raw: object) -> bool:
    """Whether a quantity requests something. JSON null is 0."""
    read = quantity(raw)
    return raw is not None if read is None else read.nano != 0


def containers(pod: admission_v1.PodObject) -> Iterator[Written]:
    """Yield a pod's containers: init containers and sidecars, then apps."""
    for list_name in ("initContainers", "containers"):
        read = getattr(pod.spec, list_name) or ()
        for index, (container, more) in enumerate(zip(read, getattr(pod.more, list_name) or (), strict=True)):
            yield Written(list_name, index, container, more)
