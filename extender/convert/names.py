"""Whether the names in an object's metadata are legal at an API server.

It must not refuse anything itself. Invariant: an object without a name, as in some filter requests, has no illegal
name.
"""

from accounting.status import Invalid
from extender.wire.core_v1 import ObjectMeta
from extender.wire.names import are_plain, why_no_label, why_no_subdomain, why_no_uid


def misnamed(meta: ObjectMeta | None) -> tuple[Invalid, ...]:
    """Return the names that no API server accepts, each with its reason; absent and empty names are left out."""
    if meta is None:
        return ()
    name, namespace, uid = meta.name, meta.namespace, meta.uid
    if name and namespace and uid and are_plain(namespace, name, uid):
        return ()
    found = []
    if name and (why := why_no_subdomain(name)):
        found.append(Invalid("metadata.name", name, why))
    if namespace and (why := why_no_label(namespace)):
        found.append(Invalid("metadata.namespace", namespace, why))
    if uid and (why := why_no_uid(uid)):
        found.append(Invalid("metadata.uid", uid, why))
    return tuple(found)
