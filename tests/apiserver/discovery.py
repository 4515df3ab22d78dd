"""Which group-versions the server has at this moment, and its answers to clients that ask for them.

It exists because an API can be enabled, and a CRD installed, while clients run. It must not store objects. Invariant:
what is not served answers 404, like an unknown path; its objects are there when it comes back.
"""

import orjson

from tests.apiserver.resources import OPTIONAL, RESOURCES, Resource
from tests.apiserver.statuses import ApiError

_GROUP_PARTS = 3
_NOT_FOUND = "the server could not find the requested resource"


class Discovery:
    """The group-versions that are served."""

    def __init__(self) -> None:
        self._hidden = {resource.api_version for resource in OPTIONAL}

    def serve(self, *group_versions: str) -> None:
        """Serve these from now on."""
        self._hidden -= set(group_versions)

    def withdraw(self, group_version: str) -> list[Resource]:
        """Stop serving one; returns its resources."""
        self._hidden.add(group_version)
        return [resource for resource in OPTIONAL if resource.api_version == group_version]

    def check(self, resource: Resource) -> None:
        """Raise ApiError 404 for a resource that is not served."""
        if resource.api_version in self._hidden:
            raise ApiError(404, _NOT_FOUND)

    def document(self, path: str) -> bytes | None:
        """Return the APIResourceList at /apis/GROUP/VERSION; None for any other path. Raises ApiError 404."""
        parts = path.strip("/").split("/")
        if parts[0] != "apis" or len(parts) != _GROUP_PARTS:
            return None
        group_version = f"{parts[1]}/{parts[2]}"
        found = [resource for resource in RESOURCES if resource.api_version == group_version]
        if not found or group_version in self._hidden:
            raise ApiError(404, _NOT_FOUND)
        resources = [{"name": each.plural, "kind": each.kind, "namespaced": each.namespaced} for each in found]
        return orjson.dumps({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources})
