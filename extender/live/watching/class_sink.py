"""From watched DeviceClasses to the resource names that they map.

It must not do I/O. Invariant: one that does not decode changes nothing but itself.
"""

import msgspec

from extender.cluster import DeviceClasses
from extender.convert import mapped_resource
from extender.kube.reflector import Change, Taken
from extender.logs import logger
from extender.wire import resource_v1
from extender.wire.shallow import read_with


class DeviceClassSink:
    """DeviceClasses by name."""

    def __init__(self, classes: DeviceClasses) -> None:
        self._classes = classes
        self._decoder = msgspec.json.Decoder(resource_v1.DeviceClass)

    def change(self, change: Change, raw: msgspec.Raw) -> Taken:
        """Take one class."""
        try:
            wire = read_with(self._decoder, raw)
        except msgspec.DecodeError as error:
            logger().error("deviceclass does not decode", why=str(error))
            return Taken(None)
        name, mapped = mapped_resource(wire)
        if not name or wire.metadata is None:
            logger().error("deviceclass without a name")
            return Taken(None)
        if change is Change.DELETED:
            self._classes.remove(name)
        else:
            self._classes.put(name, mapped)
        return Taken(name, wire.metadata.resourceVersion)

    def replaced(self, identities: set[str]) -> None:
        """Drop every class that a list did not name."""
        for name in sorted(self._classes.names() - identities):
            self._classes.remove(name)
