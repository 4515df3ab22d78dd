"""What names a watched object, if it decodes at all.

It must not know what objects mean. Invariant: nothing is raised, whatever the bytes are.
"""

import msgspec

from extender.convert import misnamed
from extender.logs import logger
from extender.wire import core_v1
from extender.wire.shallow import read_with


class ObjectName(msgspec.Struct):
    """The parts of metadata that name an object."""

    uid: str | None = None
    namespace: str | None = None
    name: str | None = None
    resourceVersion: str | None = None  # noqa: N815 - as JSON has it


class _Object(msgspec.Struct):
    metadata: ObjectName | None = None


_decoder = msgspec.json.Decoder(_Object)


def name_of(raw: msgspec.Raw) -> ObjectName:
    """Return what names an object, as far as it can be read."""
    try:
        return read_with(_decoder, raw).metadata or ObjectName()
    except msgspec.DecodeError:
        return ObjectName()


def is_misnamed(kind: str, meta: core_v1.ObjectMeta | None) -> bool:
    """Whether an object has a name that no API server accepts; then it is not taken, for its name would be in paths."""
    illegal = misnamed(meta)
    if illegal:
        logger().error("object has an illegal name", kind=kind, why=str(illegal[0]))
    return bool(illegal)
