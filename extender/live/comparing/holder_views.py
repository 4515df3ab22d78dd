"""Claims, slices, VMIs and objects that tell of holds, in the cache and at the API server.

Why it exists: what other holders have is as easily lost with a watch event as what pods have. It must not do I/O.
Invariants: what may not be read alone is listed by its name, so that no further permission is needed; a claim without
devices of GPU drivers, and a slice of another driver, are None on both sides; an object that cannot be used is no
difference, since what was known of it stays on purpose.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from accounting.holders import GPU_DRIVERS, Claim, VmiKey
from extender.cluster import Cluster
from extender.config import HoldSource
from extender.convert import InputError, convert_claim, convert_hold, convert_slice, convert_vmi
from extender.kube.paths import Resource, api_path
from extender.live.comparing.views import Json, Seen
from extender.wire import kubevirt_v1, resource_v1
from extender.wire.shallow import read_json


class _Items(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Kind(Protocol):
    """What the views of this module differ in."""

    def known(self) -> set[str]:
        """Every identity that the cache has."""

    def name_of(self, identity: str, value: Any) -> tuple[str | None, str] | None:  # noqa: ANN401 - a value of the kind
        """Return an object's namespace, if it has one, and its name; None if it is not known any more."""

    def decode(self, raw: msgspec.Raw | bytes) -> Seen:
        """Read an object. Raises `msgspec.DecodeError` or `InputError`."""

    def cached(self, identity: str) -> Any:  # noqa: ANN401 - a value of the kind
        """Return what the cache has."""

    def shown(self, value: Any) -> Json:  # noqa: ANN401 - a value of the kind
        """Return a value as JSON."""


class HolderView:
    """One resource, listed at a path. `word`: of its objects in messages."""

    query: Mapping[str, str] = {}

    def __init__(self, kind: _Kind, resource: Resource, word: str) -> None:
        self.path = api_path(resource)
        self._kind = kind
        self._resource = resource
        self._word = word

    def known(self) -> set[str]:
        """Every object."""
        return self._kind.known()

    def read(self, raw: msgspec.Raw | bytes) -> Seen | None:
        """An object; one that cannot be used is as it was."""
        with suppress(msgspec.DecodeError, InputError):
            return self._kind.decode(raw)
        return None

    def rest(self) -> Iterable[Seen]:
        """Nothing."""
        return ()

    def path_of(self, identity: str, value: Any) -> str | None:  # noqa: ANN401 - a value of this view
        """The list of its namespace."""
        name = self._kind.name_of(identity, value)
        return None if name is None else api_path(self._resource, namespace=name[0])

    def query_of(self, identity: str, value: Any) -> Mapping[str, str] | None:  # noqa: ANN401 - a value of this view
        """By its name."""
        name = self._kind.name_of(identity, value)
        return None if name is None else {"fieldSelector": f"metadata.name={name[1]}"}

    def read_again(self, identity: str, body: bytes) -> Any:  # noqa: ANN401 - a value of this view
        """The object, if it is still that one."""
        for raw in read_json(body, _Items).items or ():
            seen = self.read(raw)
            if seen is None:
                return self._kind.cached(identity)
            if seen.identity == identity:
                return seen.value
        return None

    def cached(self, identity: str) -> Any:  # noqa: ANN401 - a value of this view
        """What the cache has."""
        return self._kind.cached(identity)

    def agrees(self, identity: str, value: Any) -> bool:  # noqa: ANN401 - a value of this view
        """Whether both are equal."""
        return bool(self._kind.cached(identity) == value)

    def is_open(self, identity: str) -> bool:  # noqa: ARG002 - the protocol's argument
        """Never."""
        return False

    def shown(self, identity: str, cached: Any, value: Any) -> Json:  # noqa: ANN401 - values of this view
        """By name."""
        name = self._kind.name_of(identity, value if value is not None else cached)
        text = identity if name is None else "/".join(part for part in name if part)
        sides = [None if each is None else self._kind.shown(each) for each in (cached, value)]
        return {"object": f"{self._word} {text}", "cache": sides[0], "api": sides[1]}


class ToldClaims:
    """ResourceClaims by UID."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def known(self) -> set[str]:
        """Those with devices of GPU drivers."""
        return self._cluster.resource_claims.uids()

    def name_of(self, identity: str, value: Any) -> tuple[str | None, str] | None:  # noqa: ANN401 - see the protocol
        """From whichever side has it."""
        claim: Claim | None = value or self.cached(identity)
        return None if claim is None else (claim.namespace, claim.name)

    def decode(self, raw: msgspec.Raw | bytes) -> Seen:
        """A claim; without devices of GPU drivers it has no value."""
        claim = convert_claim(read_json(raw, resource_v1.ResourceClaim))
        counts = any(each.device.driver in GPU_DRIVERS for each in claim.results)
        return Seen(claim.uid, claim if counts else None)

    def cached(self, identity: str) -> Claim | None:
        """The claim as it was told."""
        return self._cluster.resource_claims.claim(identity)

    def shown(self, value: Any) -> Json:  # noqa: ANN401 - see the protocol
        """Its devices."""
        return {"uid": value.uid, "devices": ["/".join(each.device) for each in value.results]}


class Slices:
    """ResourceSlices by name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def known(self) -> set[str]:
        """Those of GPU drivers."""
        return self._cluster.resource_claims.slice_names()

    def name_of(self, identity: str, value: Any) -> tuple[str | None, str]:  # noqa: ANN401, ARG002 - see the protocol
        """Its name."""
        return None, identity

    def decode(self, raw: msgspec.Raw | bytes) -> Seen:
        """A slice; of another driver it has no value."""
        found = convert_slice(read_json(raw, resource_v1.ResourceSlice))
        return Seen(found.name, found if found.driver in GPU_DRIVERS else None)

    def cached(self, identity: str) -> Any:  # noqa: ANN401 - see the protocol
        """The slice as it was told."""
        return self._cluster.resource_claims.slice(identity)

    def shown(self, value: Any) -> Json:  # noqa: ANN401 - see the protocol
        """Its pool and devices."""
        return {"pool": value.pool, "generation": value.generation, "devices": [each.name for each in value.devices]}


class Machines:
    """VMIs by namespace and name."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def known(self) -> set[str]:
        """Every VMI."""
        return {"/".join(vmi.key) for vmi in self._cluster.raw.vmis()}

    def name_of(self, identity: str, value: Any) -> tuple[str | None, str]:  # noqa: ANN401, ARG002 - see the protocol
        """Its name."""
        namespace, _, name = identity.partition("/")
        return namespace, name

    def decode(self, raw: msgspec.Raw | bytes) -> Seen:
        """A VMI."""
        wire = read_json(raw, kubevirt_v1.VirtualMachineInstance)
        vmi = convert_vmi(wire, self._cluster.settings)
        return Seen("/".join(vmi.key), vmi)

    def cached(self, identity: str) -> Any:  # noqa: ANN401 - see the protocol
        """The VMI as it was told."""
        namespace, _, name = identity.partition("/")
        return self._cluster.raw.vmi(VmiKey(namespace, name))

    def shown(self, value: Any) -> Json:  # noqa: ANN401 - see the protocol
        """What counts of it."""
        return {"node": value.node, "active_pods": sorted(value.active_pods), "units": dict(value.units)}


class ToldHolds:
    """Objects that tell of holds, by namespace and name."""

    def __init__(self, cluster: Cluster, source: HoldSource) -> None:
        self._cluster = cluster
        self._source = source

    def known(self) -> set[str]:
        """Every object."""
        return {"/".join(name) for name in self._cluster.hold_sets.names()}

    def name_of(self, identity: str, value: Any) -> tuple[str | None, str]:  # noqa: ANN401, ARG002 - see the protocol
        """Its name."""
        namespace, _, name = identity.partition("/")
        return namespace, name

    def decode(self, raw: msgspec.Raw | bytes) -> Seen:
        """A hold as its object says it."""
        hold = convert_hold(read_json(raw, dict[str, Any]), self._source, self._cluster.settings)
        return Seen(f"{hold.vmi.namespace}/{hold.name}", hold)

    def cached(self, identity: str) -> Any:  # noqa: ANN401 - see the protocol
        """The hold as it was told."""
        namespace, _, name = identity.partition("/")
        return self._cluster.hold_sets.told((namespace, name))

    def shown(self, value: Any) -> Json:  # noqa: ANN401 - see the protocol
        """All that counts of it."""
        return {"vmi": value.vmi.name, "raw_key": value.key, "units": value.units, "node": value.node}
