"""kube-scheduler's extender protocol v1: requests in, answers out.

Why it exists: the Go structs have no JSON tags, so keys are written as the fields are spelled, and read in any case. It
must not know cards. Invariants: kube-scheduler can decode every answer (integers, never a null for a node, no percent
sign in an Error); answers for thousands of nodes are built from lists of names, not from objects per node. Source:
k8s.io/kube-scheduler/extender/v1/types.go.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import orjson

from extender.wire.bounds import why_too_dense
from extender.wire.core_v1 import Pod
from extender.wire.names import why_no_label, why_no_subdomain, why_no_uid
from extender.wire.unreadable import UNREADABLE, why_unreadable


class WireError(Exception):
    """A body that cannot be answered. The text goes into the Error field, or into the log."""


class NotReadyError(WireError):
    """This replica does not know; another one may."""


class _NodeMeta(msgspec.Struct):
    name: str | None = None


class _NodeName(msgspec.Struct):
    metadata: _NodeMeta | None = None


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Args(msgspec.Struct):
    Pod: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    Nodes: _NodeList | msgspec.UnsetType | None = msgspec.UNSET
    NodeNames: list[str] | msgspec.UnsetType | None = msgspec.UNSET


class _RawArgs(msgspec.Struct):
    Pod: msgspec.Raw = msgspec.Raw()
    Nodes: msgspec.Raw = msgspec.Raw(b"null")
    NodeNames: msgspec.Raw = msgspec.Raw()


class ExtenderArgs(msgspec.Struct):
    """A decoded filter or prioritize request."""

    raw_pod: bytes
    pod: Pod
    names: list[str]
    """The candidate nodes: NodeNames, or the names of Nodes.items."""
    items: list[msgspec.Raw] | None
    """The Node objects as they came, if the request has them."""
    item_names: list[str]
    by_name: bool
    """Whether the request has NodeNames."""


class BindingArgs(msgspec.Struct):
    """A decoded bind request."""

    PodName: str = ""
    PodNamespace: str = ""
    PodUID: str = ""
    Node: str = ""


#: Enough for four names and their keys; a name has at most 253 bytes.
_LONGEST_BINDING_BYTES = 2**16
#: The names of a bind become part of paths.
_NAMES = (
    ("PodName", why_no_subdomain),
    ("PodNamespace", why_no_label),
    ("PodUID", why_no_uid),
    ("Node", why_no_subdomain),
)

_args_decoder = msgspec.json.Decoder(_Args)
_raw_args_decoder = msgspec.json.Decoder(_RawArgs)
_pod_decoder = msgspec.json.Decoder(Pod)
_binding_decoder = msgspec.json.Decoder(BindingArgs)
_name_decoder = msgspec.json.Decoder(_NodeName)
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_args(body: bytes) -> ExtenderArgs:
    """Read ExtenderArgs. Raises `WireError` for a null Pod, no node list, or a body that does not decode."""
    check_density(body)
    try:
        args = _args_decoder.decode(body)
        if msgspec.UNSET in (args.Pod, args.Nodes, args.NodeNames):
            args = _args_decoder.decode(with_exact_keys(body, _Args.__struct_fields__))
        if args.Pod is msgspec.UNSET or bytes(args.Pod) == b"null":
            raise WireError("Pod: null: the request has no pod")
        raw_pod = bytes(args.Pod)
        pod = _pod_decoder.decode(raw_pod)
        # kube-scheduler counts a node as often as it is named, so the answer names each once.
        named: dict[str, msgspec.Raw] = {}
        for item in (args.Nodes.items or ()) if isinstance(args.Nodes, _NodeList) else ():
            named.setdefault(_node_name(item), item)
    except UNREADABLE as error:
        raise WireError(f"request body: {why_unreadable(error)}") from None
    item_names = list(named)
    items = list(named.values()) if isinstance(args.Nodes, _NodeList) else None
    if isinstance(args.NodeNames, list):
        return ExtenderArgs(raw_pod, pod, args.NodeNames, items, item_names, by_name=True)
    if items is None:
        raise WireError("NodeNames: null: the request has neither NodeNames nor Nodes")
    return ExtenderArgs(raw_pod, pod, item_names, items, item_names, by_name=False)


def raw_pod_and_names(body: bytes) -> tuple[bytes, bytes] | None:
    """Return the request's pod and NodeNames as they came; None if it does not have exactly these two."""
    try:
        args = _raw_args_decoder.decode(body)
    except UNREADABLE:
        return None
    return (bytes(args.Pod), bytes(args.NodeNames)) if bytes(args.Nodes) == b"null" else None


def decode_binding(body: bytes) -> BindingArgs:
    """Read ExtenderBindingArgs. Raises `WireError` if a field is missing, empty or no legal name."""
    if len(body) > _LONGEST_BINDING_BYTES:
        raise WireError(f"request body: {len(body)} bytes: a Binding has at most {_LONGEST_BINDING_BYTES}")
    try:
        args = _binding_decoder.decode(with_exact_keys(body, BindingArgs.__struct_fields__))
    except UNREADABLE as error:
        raise WireError(f"request body: {why_unreadable(error)}") from None
    for name in BindingArgs.__struct_fields__:
        if not getattr(args, name):
            raise WireError(f"{name}: empty: the request names no {name}")
    for name, check in _NAMES:
        why = check(getattr(args, name))
        if why:
            raise WireError(f"{name}: {getattr(args, name)}: {why}")
    return args


def check_density(body: bytes) -> None:
    """Raise `WireError` for a body that would take too long to read."""
    why = why_too_dense(body)
    if why is not None:
        raise WireError(f"request body: {why}")


def encode_names(names: Sequence[str]) -> bytes:
    """Return a list of names, encoded as kube-scheduler will send it."""
    return orjson.dumps(names)


def encode_filter(
    names: bytes,
    failed: Mapping[str, str],
    unresolvable: Mapping[str, str],
    items: Iterable[msgspec.Raw] | None,
) -> bytes:
    """Return ExtenderFilterResult.

    `names`: the passing names, encoded, or "null". `items`: the passing Node objects, unchanged, if the request had
    them.
    """
    nodes = b"null" if items is None else b'{"metadata":{},"items":[' + b",".join(map(bytes, items)) + b"]}"
    return b'{"Nodes":%b,"NodeNames":%b,"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":""}' % (
        nodes,
        names,
        orjson.dumps(failed),
        orjson.dumps(unresolvable),
    )


def encode_filter_error(text: str) -> bytes:
    """Return an ExtenderFilterResult with an Error."""
    return (
        b'{"Nodes":null,"NodeNames":null,"FailedNodes":null,"FailedAndUnresolvableNodes":null,"Error":%b}'
        % orjson.dumps(_error_text(text))
    )


def encode_priorities(scores: Iterable[tuple[str, int]]) -> bytes:
    """Return a HostPriorityList; hosts that are not listed count as 0."""
    return orjson.dumps([{"Host": host, "Score": score} for host, score in scores])


def encode_binding(error: str = "") -> bytes:
    """Return ExtenderBindingResult; an empty text means success."""
    return b'{"Error":%b}' % orjson.dumps(_error_text(error))


def with_exact_keys(body: bytes, fields: tuple[str, ...]) -> bytes:
    """Return the object with its top-level keys spelled as the fields are; an exact key wins over a folded one."""
    found = _object_decoder.decode(body)
    folded = {key.casefold(): raw for key, raw in found.items()}
    exact = {field: found.get(field, folded.get(field.casefold())) for field in fields}
    return msgspec.json.encode({field: raw for field, raw in exact.items() if raw is not None})


def unique(names: list[str]) -> list[str]:
    """Return the names without repetitions, in order."""
    return names if len(set(names)) == len(names) else list(dict.fromkeys(names))


def _node_name(item: msgspec.Raw) -> str:
    node = _name_decoder.decode(item)
    name = node.metadata.name if node.metadata is not None else None
    if not name:
        raise WireError("Nodes.items[].metadata.name: empty: a node has no name")
    return name


def _error_text(text: str) -> str:
    # kube-scheduler uses the text as a format string when it makes the event.
    return text.replace("%", " percent")
