"""The options that name a custom resource whose objects are holds.

Why it exists: such a resource is whoever's binder made it, so its name and its fields are given. It must not read
objects. Invariant: what is wrong in an option is named before anything runs.
"""

import argparse
from dataclasses import replace

from extender.config import HoldSource
from extender.convert import InputError
from extender.wire.names import why_no_label, why_no_subdomain

_FIELDS = ("vmi", "key", "units", "node", "state")
_PARTS = 3


def hold_resource(text: str) -> HoldSource:
    """Read PLURAL.VERSION.GROUP, as kubectl takes it."""
    plural, version, group = ([*text.split(".", 2), "", "", ""])[:_PARTS]
    if why_no_label(plural) or why_no_label(version) or why_no_subdomain(group):
        message = f"{text or '(empty)'}: must be PLURAL.VERSION.GROUP, such as holds.v1alpha1.gpu-extender.io"
        raise argparse.ArgumentTypeError(message)
    return HoldSource(group, version, plural)


def hold_field(text: str) -> tuple[str, str]:
    """Read FIELD=PATH."""
    name, equals, path = text.partition("=")
    if not equals or name not in _FIELDS:
        raise argparse.ArgumentTypeError(
            f"{text or '(empty)'}: must be FIELD=PATH, the field one of {', '.join(_FIELDS)}"
        )
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts) or parts[0] in ("metadata", "kind", "apiVersion"):
        raise argparse.ArgumentTypeError(f"{text}: {path or '(empty)'} is no path such as spec.vmName")
    return name, path


def hold_source_of(arguments: argparse.Namespace) -> HoldSource | None:
    """Return the resource that the options name. Raises `InputError`."""
    source: HoldSource | None = arguments.hold_resource
    if source is None:
        if arguments.hold_field:
            name, path = arguments.hold_field[0]
            raise InputError("--hold-field", f"{name}={path}", "needs --hold-resource")
        return None
    if not arguments.raw_key:
        raise InputError("--hold-resource", f"{source.plural}.{source.version}.{source.group}", "needs --raw-key")
    source = replace(source, **dict(arguments.hold_field))
    if source.node.startswith("status.") is not source.state.startswith("status."):
        why = f"must be in the status exactly if the state is, which is at {source.state}"
        raise InputError("--hold-field", f"node={source.node}", why)
    paths = [getattr(source, name) for name in _FIELDS]
    for path in paths:
        if paths.count(path) > 1 or any(other.startswith(f"{path}.") for other in paths):
            raise InputError("--hold-field", path, "two fields cannot be at one place")
    return source
