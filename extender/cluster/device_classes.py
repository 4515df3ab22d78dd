"""Which resource names DRA's DeviceClasses give to devices.

Why it exists: a container's limit on such a name is served by DRA (KEP-5004), so it is no misspelling of a managed one.
It must not know devices. Invariant: a class that is gone maps nothing.
"""

#: Every class can be asked for by this name and its own.
_PREFIX = "deviceclass.resource.kubernetes.io/"


class DeviceClasses:
    """Classes by name, each with the resource name that it maps, if it maps one."""

    def __init__(self) -> None:
        self._mapped: dict[str, str] = {}

    def put(self, name: str, extended_resource: str) -> None:
        """Record a class as it is now. `extended_resource`: "" if it maps none."""
        self._mapped[name] = extended_resource

    def remove(self, name: str) -> None:
        """Record that a class is gone."""
        self._mapped.pop(name, None)

    def names(self) -> set[str]:
        """Return the names of the classes."""
        return set(self._mapped)

    def maps(self, resource: str) -> bool:
        """Whether a class gives this resource name to its devices."""
        return resource in self._mapped.values() or (
            resource.startswith(_PREFIX) and resource.removeprefix(_PREFIX) in self._mapped
        )
