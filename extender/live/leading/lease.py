"""The Lease object: reading it, writing it, and whose it is.

Why it exists: two kinds of leadership read the same object. It must not decide who leads. Invariants: a write carries
the resourceVersion that was read, so of two writers one is refused; a write keeps labels, owners and fields of others.
Source: client-go's leader election for the meaning of the fields. Every new holder raises leaseTransitions, so an equal
number on an equal object means that nobody else held it in between.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple

import msgspec

from extender.kube.client import Answer, KubeClient, Unknown
from extender.kube.paths import LEASES, api_path
from extender.wire.shallow import read_json

#: Names the term whose holder gave the Lease up after its last write was settled.
_SETTLED = "gpu-extender.io/settled-term"


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Times of leases, in seconds."""

    namespace: str = "kube-system"
    name: str = "gpu-extender"
    duration_seconds: float = 6.0
    """Duration of a lease: most of the time that a standby waits after its leader was killed. A leader may miss two
    renewals. If the API server is away for longer, leadership stays, since nobody else can get the Lease meanwhile."""
    retry_seconds: float = 2.0
    request_timeout_seconds: float = 5.0
    write_deadline_seconds: float = 0.0
    """How long a new leader waits, after the old lease's end, for what its holder had sent. 0: it does not wait, but
    rules late Bindings out as for a process that no Lease names."""

    prepare_seconds: float = 60.0
    """A holder that cannot list everything within this time gives the Lease up."""

    @property
    def timeout_seconds(self) -> float:
        """Limit of one request: one that hangs costs no lease, three in a row do."""
        return min(self.request_timeout_seconds, self.duration_seconds / 3)


class Term(NamedTuple):
    """One holder's time without another in between: the object's UID and how often the holder changed."""

    uid: str
    transitions: int


#: The range of the API's types. No API server writes larger numbers, and Python could neither convert nor encode them.
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Spec(msgspec.Struct, omit_defaults=True):
    holderIdentity: str | None = None  # noqa: N815 - as the Kubernetes API names it
    leaseDurationSeconds: _Int32 | None = None  # noqa: N815
    acquireTime: str | None = None  # noqa: N815
    renewTime: str | None = None  # noqa: N815
    leaseTransitions: _Int32 | None = None  # noqa: N815
    strategy: str | None = None
    preferredHolder: str | None = None  # noqa: N815


class _Lease(msgspec.Struct):
    metadata: dict[str, Any]
    spec: _Spec | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as it was read or written."""

    metadata: dict[str, Any]
    spec: _Spec

    @property
    def version(self) -> str:
        """Changes with every write."""
        return str(self.metadata.get("resourceVersion") or "")

    @property
    def holder(self) -> str:
        """The holder's identity; empty if there is no holder."""
        return self.spec.holderIdentity or ""

    @property
    def term(self) -> Term:
        """The holder's term."""
        return Term(str(self.metadata.get("uid") or ""), self.spec.leaseTransitions or 0)

    @property
    def is_settled(self) -> bool:
        """Whether its last holder gave it up after its last write; an empty holder alone does not prove that."""
        noted = (self.metadata.get("annotations") or {}).get(_SETTLED)
        return not self.holder and noted == str(self.term.transitions)

    def duration_seconds(self, default: float) -> float:
        """How long it holds after a renewal."""
        return float(self.spec.leaseDurationSeconds or default)


class Missing(NamedTuple):
    """There is no such Lease."""


class Failed(NamedTuple):
    """Nothing is known: there was no answer, or one that is no Lease."""

    status: int
    why: str


class LeaseClient:
    """One Lease on the API server."""

    def __init__(self, client: KubeClient, settings: LeaseSettings) -> None:
        self._client = client
        self._settings = settings
        self._collection = api_path(LEASES, namespace=settings.namespace)
        self._path = api_path(LEASES, settings.name, namespace=settings.namespace)

    async def read(self) -> Lease | Missing | Failed:
        """Return the Lease as it is now."""
        return await self._send("GET", self._path, None)

    async def hold(self, identity: str, before: Lease | None) -> Lease | Missing | Failed:
        """Write that `identity` holds the Lease from now on, in place of `before`."""
        known = _Spec() if before is None else before.spec
        renewed, now = known.holderIdentity == identity, _micro_time()
        spec = _Spec(
            holderIdentity=identity,
            # Never shorter than what this process itself relies on.
            leaseDurationSeconds=max(1, math.ceil(self._settings.duration_seconds)),
            acquireTime=known.acquireTime if renewed and known.acquireTime else now,
            renewTime=now,
            leaseTransitions=(known.leaseTransitions or 0) + (not renewed and before is not None),
            strategy=known.strategy,
            preferredHolder=known.preferredHolder,
        )
        return await self._write(spec, before)

    async def free(self, before: Lease) -> Lease | Missing | Failed:
        """Write that nobody holds the Lease, and that no write of its last holder can still take effect."""
        known, annotations = before.spec, dict(before.metadata.get("annotations") or {})
        annotations[_SETTLED] = str(before.term.transitions)
        spec = _Spec(
            holderIdentity="",
            leaseDurationSeconds=1,
            acquireTime=known.acquireTime,
            renewTime=_micro_time(),
            leaseTransitions=known.leaseTransitions,
            strategy=known.strategy,
            preferredHolder=known.preferredHolder,
        )
        return await self._write(spec, Lease(before.metadata | {"annotations": annotations}, before.spec))

    async def _write(self, spec: _Spec, before: Lease | None) -> Lease | Missing | Failed:
        metadata = {"name": self._settings.name, "namespace": self._settings.namespace}
        value = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata if before is None else before.metadata,
            "spec": spec,
        }
        body = msgspec.json.encode(value)
        if before is None:
            return await self._send("POST", self._collection, body)
        return await self._send("PUT", self._path, body)

    async def _send(self, method: str, path: str, body: bytes | None) -> Lease | Missing | Failed:
        answer = await self._client.request(
            method, path, body=body, timeout_seconds=self._settings.timeout_seconds, urgent=True
        )
        return _read(answer)


def _read(answer: Answer | Unknown) -> Lease | Missing | Failed:
    if answer.status == HTTPStatus.NOT_FOUND:
        return Missing()
    if isinstance(answer, Unknown) or not answer.ok:
        return Failed(answer.status, answer.message)
    try:
        lease = read_json(answer.body, _Lease)
    except msgspec.DecodeError as error:
        return Failed(0, f"the Lease does not decode: {error}")
    if not lease.metadata.get("resourceVersion"):
        return Failed(0, "the Lease has no resourceVersion")
    return Lease(lease.metadata, lease.spec or _Spec())


def _micro_time() -> str:
    """Return the time as the API writes a MicroTime. No decision depends on it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
