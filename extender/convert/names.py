"""Whether the names in an object's metadata are legal at an API server.

It must not refuse anything itself. Invariant: an object without a name, as in some filter requests, has no illegal
name.
"""

from accounting.status import Invalid
from extender.wire.core_v1 import ObjectMeta
from extender.wire.names import why_no_label, why_no_subdomain, why_no_uid


def misnamed(meta: ObjectMeta | None) -> tuple[Invalid, ...]:
    """Return the names that no API server accepts, each with its reason; absent and empty names are left out."""
    if meta is None:
        return ()
    checked = (
        ("metadata.name", meta.name, why_no_subdomain),
        ("metadata.namespace", meta.namespace, why_no_label),
        ("metadata.uid", meta.uid, why_no_uid),
    )
    return tuple(Invalid(field, text, why) for field, text, check in checked if text and (why := check(text)))
