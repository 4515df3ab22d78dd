"""Objects of a custom resource -> holds.

It must not do I/O. Invariant: a field that cannot be used is named with its value; nothing is guessed in its place.
"""

from typing import Any

from accounting.errors import QuantityError
from accounting.holders import Hold, HoldState, VmiKey
from accounting.quantity import parse_quantity
from extender.config import HoldSource, Settings
from extender.convert.manifests import InputError
from extender.wire.names import why_no_subdomain

#: More devices than any node has; sums of such numbers do not wrap.
_MOST_UNITS = 2**16
_STATES = frozenset(HoldState)


def convert_hold(tree: dict[str, Any], source: HoldSource, settings: Settings) -> Hold:
    """Return the hold that an object tells of. Raises `InputError` that names the field."""
    namespace, name = _text(tree, "metadata.namespace") or "default", _text(tree, "metadata.name")
    vmi, key, node = _text(tree, source.vmi), _text(tree, source.key), _text(tree, source.node)
    if why_no_subdomain(vmi):
        raise InputError(source.vmi, vmi or "(empty)", "must be the name of a VirtualMachineInstance")
    if key not in settings.raw_keys:
        raise InputError(source.key, key or "(empty)", "is no raw key; name it with --raw-key")
    told = _text(tree, source.state) or (HoldState.BOUND if node else HoldState.PENDING)
    if told not in _STATES:
        raise InputError(source.state, told, f"must be one of {', '.join(sorted(_STATES))}")
    # What says Bound and not where, was never placed.
    state = HoldState.PENDING if told == HoldState.BOUND and not node else HoldState(told)
    units = _units(tree, source.units)
    where = node if state is HoldState.BOUND else None
    return Hold(f"{namespace}/{vmi}", VmiKey(namespace, vmi), key, units, where, state, name)


def place_of(hold: Hold, source: HoldSource) -> dict[str, Any]:
    """Return a merge patch by which an object says where its hold is."""
    patch: dict[str, Any] = {}
    for path, value in ((source.node, hold.node), (source.state, hold.state.value)):
        *outer, last = path.split(".")
        inner = patch
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return patch


def _units(tree: dict[str, Any], path: str) -> int:
    """Return how many devices; 1 where nothing is said."""
    raw = _at(tree, path)
    if raw is None:
        return 1
    try:
        quantity = parse_quantity(raw)
    except QuantityError:
        quantity = None
    if quantity is None or isinstance(raw, bool) or not quantity.is_integer or not 0 < quantity.value() <= _MOST_UNITS:
        raise InputError(path, str(raw), f"must be a whole number of devices from 1 to {_MOST_UNITS}")
    return quantity.value()


def _text(tree: dict[str, Any], path: str) -> str:
    found = _at(tree, path)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InputError(path, str(found), "must be a text")
    return found


def _at(tree: dict[str, Any], path: str) -> Any:  # noqa: ANN401 - a JSON value
    """Return what is at a path; None where a part is missing."""
    found: Any = tree
    for part in path.split("."):
        if found is None:
            return None
        if not isinstance(found, dict):
            raise InputError(path, str(found), f"{part} is asked of what is no object")
        found = found.get(part)
    return found
