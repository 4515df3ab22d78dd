"""A Pod as a watch sends it: `core_v1.Pod` with its containers' resources undecoded.

Why it exists: a watch sends tens of thousands of pods whose containers' resources are equal byte for byte, so they are
read once and remembered by their text. It must not interpret values. Invariant: the undecoded parts are later read as
`core_v1` reads them, and an object that `core_v1.Pod` refuses is refused here or by `resources_of`.
"""

from typing import Annotated

import msgspec

from extender.wire import core_v1
from extender.wire.shallow import read_with


class Container(core_v1.Object):
    """A container of either list."""

    name: str | None = None
    restartPolicy: str | None = None
    restartPolicyRules: list[core_v1.RestartPolicyRule] | None = None
    resources: msgspec.Raw = msgspec.Raw(b"null")


class PodSpec(core_v1.Object):
    """spec."""

    nodeName: str | None = None
    initContainers: Annotated[list[Container], core_v1.Bounded] | None = None
    containers: Annotated[list[Container], core_v1.Bounded] | None = None
    overhead: core_v1.Quantities | None = None
    priority: int | None = None
    priorityClassName: str | None = None
    preemptionPolicy: str | None = None
    activeDeadlineSeconds: int | None = None
    affinity: core_v1.Affinity | None = None
    resources: core_v1.Resources | None = None


class Pod(core_v1.Object):
    """A Pod."""

    metadata: core_v1.ObjectMeta | None = None
    spec: PodSpec | None = None
    status: core_v1.PodStatus | None = None


AnyContainer = core_v1.Container | Container
AnyPodSpec = core_v1.PodSpec | PodSpec
AnyPod = core_v1.Pod | Pod

_pod_decoder = msgspec.json.Decoder(Pod)
_whole_decoder = msgspec.json.Decoder(core_v1.Pod)
_resources_decoder = msgspec.json.Decoder(core_v1.Resources | None)


def decode_pod(raw: msgspec.Raw) -> Pod:
    """Decode a Pod. Raises `msgspec.DecodeError`, naming the field."""
    return read_with(_pod_decoder, raw)


def why_undecodable(raw: msgspec.Raw, error: msgspec.DecodeError) -> str:
    """Return why `decode_pod` or `resources_of` refused a Pod, with the full path of the field."""
    try:
        read_with(_whole_decoder, raw)
    except msgspec.DecodeError as whole:
        return str(whole)
    return str(error)


def resources_of(container: AnyContainer) -> core_v1.Resources | None:
    """Return a container's resources. Raises `msgspec.DecodeError`."""
    resources = container.resources
    return _resources_decoder.decode(resources) if isinstance(resources, msgspec.Raw) else resources


def read_resources(text: bytes) -> core_v1.Resources | None:
    """Return the resources of a text. Raises `msgspec.DecodeError`."""
    return _resources_decoder.decode(text)
