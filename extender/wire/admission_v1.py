"""The fields of AdmissionReview that are read, and the answer to it (admission.k8s.io/v1).

Why it exists: the API server sends the object that it is about to store, and reads one object as the answer. It must
not judge. Invariants: a body that is not an AdmissionReview is a `ReviewError`, to be answered with 400; a body with a
request is always answered under that request's uid. Source: k8s.io/api/admission/v1/types.go.
"""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import orjson

from extender.wire import core_v1
from extender.wire.bounds import why_too_dense
from extender.wire.unreadable import UNREADABLE, why_unreadable

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
#: The API server truncates longer warnings; all warnings of an answer together may have 4,096 bytes.
_WARNING_BYTES = 256
_WARNINGS = 12


class ReviewError(Exception):
    """A body that is not an answerable AdmissionReview. The text names the field, the value and why."""


class ObjectError(Exception):
    """An object in a review that does not decode. The text names the field and why."""


class Resource(msgspec.Struct):
    """A group, version and resource."""

    group: str | None = None
    version: str | None = None
    resource: str | None = None


class UserInfo(msgspec.Struct):
    """Who sent the request to the API server."""

    username: str | None = None
    groups: list[str] | None = None


class Request(msgspec.Struct):
    """The request of a review; its objects are decoded later, according to their kinds."""

    uid: str | None = None
    resource: Resource | None = None
    subResource: str | None = None
    name: str | None = None
    namespace: str | None = None
    operation: str | None = None
    userInfo: UserInfo | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")
    oldObject: msgspec.Raw = msgspec.Raw(b"null")
    dryRun: bool | None = None

    @property
    def target(self) -> str:
        """The resource with its subresource, e.g. "pods/status"."""
        resource = (self.resource.resource if self.resource is not None else None) or ""
        return f"{resource}/{self.subResource}" if self.subResource else resource

    @property
    def user(self) -> str:
        """The requester's name."""
        return (self.userInfo.username if self.userInfo is not None else None) or ""

    @property
    def groups(self) -> Sequence[str]:
        """The requester's groups."""
        return (self.userInfo.groups if self.userInfo is not None else None) or ()


class _Review(msgspec.Struct):
    apiVersion: str | None = None
    kind: str | None = None
    request: Request | None = None


class SecurityContext(msgspec.Struct):
    """A container's securityContext."""

    privileged: bool | None = None


class EnvVar(msgspec.Struct):
    """An entry of a container's env."""

    name: str | None = None


class Container(msgspec.Struct):
    """The fields of a container that only admission reads."""

    name: str | None = None
    securityContext: SecurityContext | None = None
    env: list[EnvVar] | None = None


class PodSpec(msgspec.Struct):
    """The fields of a pod's spec that only admission reads."""

    schedulerName: str | None = None
    runtimeClassName: str | None = None
    initContainers: Annotated[list[Container], core_v1.Bounded] | None = None
    containers: Annotated[list[Container], core_v1.Bounded] | None = None
    ephemeralContainers: Annotated[list[Container], core_v1.Bounded] | None = None


class _AdmittedPod(msgspec.Struct):
    spec: PodSpec | None = None


class _Meta(msgspec.Struct):
    metadata: core_v1.ObjectMeta | None = None


class PodObject(NamedTuple):
    """A pod in a review: the usual fields, and those that only admission reads."""

    pod: core_v1.Pod
    more: PodSpec

    @property
    def meta(self) -> core_v1.ObjectMeta:
        """metadata, never None."""
        return self.pod.metadata or core_v1.ObjectMeta()

    @property
    def spec(self) -> core_v1.PodSpec:
        """spec, never None."""
        return self.pod.spec or core_v1.PodSpec()


_review_decoder = msgspec.json.Decoder(_Review)
_pod_decoder = msgspec.json.Decoder(core_v1.Pod)
_admitted_decoder = msgspec.json.Decoder(_AdmittedPod)
_meta_decoder = msgspec.json.Decoder(_Meta)


def decode_review(body: bytes) -> Request:
    """Read an AdmissionReview. Raises `ReviewError`."""
    why = why_too_dense(body)
    if why is not None:
        raise ReviewError(f"request body: {_shown(body)}: {why}")
    try:
        review = _review_decoder.decode(body)
    except UNREADABLE as error:
        raise ReviewError(f"request body: {_shown(body)}: {why_unreadable(error)}") from None
    if review.apiVersion != API_VERSION or review.kind != KIND:
        found = f"{review.apiVersion or '(none)'} {review.kind or '(none)'}"
        raise ReviewError(f"apiVersion, kind: {found}: must be {API_VERSION} {KIND}")
    if review.request is None:
        raise ReviewError("request: null: an AdmissionReview must carry a request")
    if not review.request.uid:
        raise ReviewError("request.uid: (empty): the answer has to repeat it")
    return review.request


def decode_pod(raw: msgspec.Raw, field: str) -> PodObject:
    """Read a Pod of a review; `field` is its path. Raises `ObjectError`."""
    try:
        pod, admitted = _pod_decoder.decode(raw), _admitted_decoder.decode(raw)
    except UNREADABLE as error:
        raise ObjectError(f"{field}: {_shown(bytes(raw))}: {why_unreadable(error)}") from None
    return PodObject(pod, admitted.spec or PodSpec())


def decode_meta(raw: msgspec.Raw, field: str) -> core_v1.ObjectMeta:
    """Read the metadata of any object of a review. Raises `ObjectError`."""
    try:
        return _meta_decoder.decode(raw).metadata or core_v1.ObjectMeta()
    except UNREADABLE as error:
        raise ObjectError(f"{field}: {_shown(bytes(raw))}: {why_unreadable(error)}") from None


def encode_allowed(uid: str, patch: Sequence[dict[str, Any]] = (), warnings: Sequence[str] = ()) -> bytes:
    """Return a review that allows; without operations it has no patch."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(list(patch))).decode()}
    return _encoded(response, warnings)


def encode_denied(uid: str, code: int, reason: str, message: str, warnings: Sequence[str] = ()) -> bytes:
    """Return a review that denies. `code` and `reason` (metav1.Status): the API server's answer to its client."""
    status = {"status": "Failure", "code": code, "reason": reason, "message": message}
    return _encoded({"uid": uid, "allowed": False, "status": status}, warnings)


def _encoded(response: dict[str, Any], warnings: Sequence[str]) -> bytes:
    if warnings:
        response["warnings"] = [_cut(text) for text in warnings[:_WARNINGS]]
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _cut(text: str) -> str:
    raw = text.encode()
    return text if len(raw) <= _WARNING_BYTES else raw[: _WARNING_BYTES - 3].decode(errors="ignore") + "..."


def _shown(raw: bytes) -> str:
    text = raw[:40].decode(errors="replace")
    return (text or "(empty)") if len(raw) <= len(text.encode()) else f"{text}..."
