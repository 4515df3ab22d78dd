"""kube-scheduler's preempt verb: candidates in, victims out.

Why it exists: if kube-scheduler sends whole objects, a request has every victim of every candidate as a whole Pod, tens
of megabytes in all. Only the victims' UIDs are read here; the Pods stay undecoded bytes, for victims that are not known
otherwise. It must not choose victims. Invariants: an answer has no null (a null crashes kube-scheduler); reading takes
two passes over the body, whatever it contains. Source: k8s.io/kube-scheduler/extender/v1/types.go.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec
import orjson

from extender.wire.core_v1 import Pod
from extender.wire.extender_v1 import WireError, check_density, with_exact_keys
from extender.wire.unreadable import UNREADABLE, why_unreadable

NULL_VICTIMS = b'{"NodeNameToMetaVictims":null}'
#: In bodies up to this length, written by hand, keys in another spelling and values of a wrong type are corrected one
#: by one. In longer bodies they are errors.
_LONGEST_FOLDED_BYTES = 2**20
_NULL = b"null"
#: Keys of volumes that every node can provide to any number of pods.
_LOCAL_VOLUMES = frozenset({"name", "configMap", "secret", "projected", "downwardAPI", "emptyDir", "hostPath"})
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Victim(NamedTuple):
    """A pod that would be evicted."""

    uid: str
    raw: bytes | msgspec.Raw | None = None
    """The whole Pod as it came, as JSON; None if the request has only UIDs."""


class Victims(NamedTuple):
    """The pods to evict on a node."""

    pods: tuple[Victim, ...] = ()
    pdb_violations: int = 0
    """NumPDBViolations: kube-scheduler orders nodes by it first."""


class Candidate(msgspec.Struct, rename={"raw": "Pods", "violations": "NumPDBViolations"}):
    """A node, and whom kube-scheduler would evict there."""

    raw: list[msgspec.Raw] | None = None
    """The victims as they came."""
    violations: _Int64 | None = None

    @property
    def pdb_violations(self) -> int:
        """NumPDBViolations; 0 if the request does not say."""
        return self.violations or 0

    def pods(self) -> tuple[Victim, ...]:
        """Return the victims. A pod that is null or no object, and one without a UID, is left out.

        Raises `WireError` for a pod that is no JSON, which was not read until now.
        """
        return tuple(victim for pod in self.raw or () if (victim := _victim(pod)) is not None)


class PreemptionArgs(NamedTuple):
    """A decoded preempt request."""

    raw_pod: bytes
    pod: Pod
    """The preemptor."""
    candidates: dict[str, Candidate]
    """By node name, in the request's order. NodeNameToMetaVictims wins over NodeNameToVictims."""


class _Port(msgspec.Struct):
    hostPort: int | None = None


class _Container(msgspec.Struct):
    ports: list[_Port] | None = None


class _Spread(msgspec.Struct):
    whenUnsatisfiable: str | None = None


class _Spec(msgspec.Struct):
    initContainers: list[_Container] | None = None
    containers: list[_Container] | None = None
    topologySpreadConstraints: list[_Spread] | None = None
    resourceClaims: list[msgspec.Raw] | None = None
    volumes: list[dict[str, msgspec.Raw]] | None = None


class _PlainPod(msgspec.Struct):
    spec: _Spec | None = None


_Candidates = dict[str, Candidate | None] | None


class _Args(msgspec.Struct):
    Pod: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    NodeNameToVictims: _Candidates = None
    NodeNameToMetaVictims: _Candidates = None


class _RawArgs(msgspec.Struct):
    Pod: msgspec.Raw = msgspec.Raw(_NULL)
    NodeNameToVictims: msgspec.Raw = msgspec.Raw(_NULL)
    NodeNameToMetaVictims: msgspec.Raw = msgspec.Raw(_NULL)


class _Meta(msgspec.Struct):
    uid: str | None = None


class _VictimPod(msgspec.Struct):
    UID: str | None = None
    uid: str | None = None
    metadata: _Meta | None = None


_args_decoder = msgspec.json.Decoder(_Args)
_raw_args_decoder = msgspec.json.Decoder(_RawArgs)
_plain_decoder = msgspec.json.Decoder(_PlainPod)
_pod_decoder = msgspec.json.Decoder(Pod)
_victim_decoder = msgspec.json.Decoder(_VictimPod | None)
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_int_decoder = msgspec.json.Decoder(_Int64)


def decode_preemption(body: bytes) -> PreemptionArgs:
    """Read ExtenderPreemptionArgs.

    A candidate that is null or not an object is left out. Raises `WireError` without a pod or a map of candidates.
    """
    check_density(body)
    try:
        args = _decoded(body)
        meta, whole = args.NodeNameToMetaVictims, args.NodeNameToVictims
        offered = meta if isinstance(meta, dict) else whole
        if args.Pod is msgspec.UNSET or bytes(args.Pod) == _NULL or not isinstance(offered, dict):
            raise WireError("NodeNameToMetaVictims: null: the request has no pod or no candidates")
        candidates = {name: candidate for name, candidate in offered.items() if candidate is not None}
        return PreemptionArgs(bytes(args.Pod), _pod_decoder.decode(args.Pod), candidates)
    except UNREADABLE as error:
        raise WireError(f"request body: {why_unreadable(error)}") from None


def decode_plain(raw_pod: bytes) -> bool:
    """Return whether only resources and affinity can keep a pod, given as JSON, from a node with other pods.

    False if that is not certain: a host port, a hard topology spread, a volume that not every node or pod can have, a
    device claim.
    """
    try:
        spec = _plain_decoder.decode(raw_pod).spec or _Spec()
    except UNREADABLE:
        return False
    containers = (*(spec.initContainers or ()), *(spec.containers or ()))
    return not (
        any(port.hostPort for each in containers for port in each.ports or ())
        or any(each.whenUnsatisfiable != "ScheduleAnyway" for each in spec.topologySpreadConstraints or ())
        or spec.resourceClaims
        or any(not _LOCAL_VOLUMES.issuperset(each) for each in spec.volumes or ())
    )


def encode_victims(candidates: Mapping[str, Victims]) -> bytes:
    """Return ExtenderPreemptionResult: the nodes where evictions help, each with its victims."""
    return orjson.dumps(
        {
            "NodeNameToMetaVictims": {
                name: {
                    "Pods": [{"UID": victim.uid} for victim in victims.pods],
                    "NumPDBViolations": victims.pdb_violations,
                }
                for name, victims in candidates.items()
            }
        }
    )


def _decoded(body: bytes) -> _Args:
    try:
        args = _args_decoder.decode(body)
    except msgspec.ValidationError:
        if len(body) > _LONGEST_FOLDED_BYTES:
            raise
        return _corrected(body)
    spelt = args.Pod is not msgspec.UNSET and (args.NodeNameToMetaVictims or args.NodeNameToVictims)
    return args if spelt or len(body) > _LONGEST_FOLDED_BYTES else _corrected(body)


def _corrected(body: bytes) -> _Args:
    """Read a short body value by value, with keys in any case."""
    args = _raw_args_decoder.decode(with_exact_keys(body, _RawArgs.__struct_fields__))
    return _Args(args.Pod, _corrected_map(args.NodeNameToVictims), _corrected_map(args.NodeNameToMetaVictims))


def _corrected_map(raw: msgspec.Raw) -> _Candidates:
    if bytes(raw)[:1] != b"{":
        return None
    return {name: _corrected_candidate(each) for name, each in _object_decoder.decode(raw).items()}


def _corrected_candidate(raw: msgspec.Raw) -> Candidate | None:
    if bytes(raw)[:1] != b"{":
        return None
    fields = _object_decoder.decode(with_exact_keys(bytes(raw), Candidate.__struct_encode_fields__))
    pods, violations = bytes(fields.get("Pods", _NULL)), bytes(fields.get("NumPDBViolations", _NULL))
    return Candidate(_list_decoder.decode(pods) if pods[:1] == b"[" else [], _corrected_number(violations))


def _corrected_number(raw: bytes) -> int:
    try:
        return _int_decoder.decode(raw)
    except msgspec.ValidationError:
        return 0


def _victim(raw: msgspec.Raw) -> Victim | None:
    """Read a MetaPod or a whole Pod; None for anything else and for one without a UID."""
    try:
        pod = _victim_decoder.decode(raw)
    except msgspec.ValidationError:
        return None
    except UNREADABLE as error:
        raise WireError(f"Pods: {why_unreadable(error)}") from None
    if pod is None:
        return None
    uid = pod.UID or pod.uid
    if uid:
        return Victim(uid)
    return Victim(pod.metadata.uid, raw) if pod.metadata is not None and pod.metadata.uid else None
