"""Budgets of whole devices, from a file or a ConfigMap's text.

It must not do I/O. Invariant: a text is taken whole or not at all: a budget that was passed over would be no limit.

    budgets:
    - namespace: team        # "*": every namespace without a budget of its own for the key
      hard:
        nvidia.com/GH100_H200_SXM_141GB: 4
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

from accounting.errors import QuantityError
from accounting.holders import ANY_NAMESPACE
from accounting.quantity import parse_quantity
from extender.convert.manifests import InputError
from extender.wire.names import why_no_label
from extender.wire.unreadable import why_unreadable

_LONGEST_TEXT = 2**20


class _Budget(msgspec.Struct, forbid_unknown_fields=True):
    namespace: str
    hard: dict[str, Any]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    budgets: list[_Budget]


class _ConfigMap(msgspec.Struct):
    kind: str
    data: dict[str, str] | None = None


def read_raw_budgets(text: str, raw_keys: tuple[str, ...], where: str) -> dict[tuple[str, str], int]:
    """Return units by namespace and raw key. `where`: the text's name in messages. Raises `InputError`."""
    found: dict[tuple[str, str], int] = {}
    for part, value in _texts(text, where):
        file = _convert(value, _File, part)
        for number, budget in enumerate(file.budgets):
            field = f"{part}: budgets[{number}]"
            why = "" if budget.namespace == ANY_NAMESPACE else why_no_label(budget.namespace)
            if why:
                raise InputError(f"{field}.namespace", budget.namespace or "(empty)", why)
            for key, raw in budget.hard.items():
                if key not in raw_keys:
                    raise InputError(f"{field}.hard", key, "is no raw key; name it with --raw-key")
                if (budget.namespace, key) in found:
                    raise InputError(f"{field}.hard[{key}]", str(raw), f"namespace {budget.namespace} has one already")
                found[budget.namespace, key] = _units(raw, f"{field}.hard[{key}]")
    return found


def _texts(text: str, where: str) -> Iterator[tuple[str, Any]]:
    """Yield the documents that hold budgets: the text itself, or each value of the ConfigMap that it is."""
    value = _parse(text, where)
    if not (isinstance(value, Mapping) and value.get("kind") == "ConfigMap"):
        yield where, value
        return
    data = _convert(value, _ConfigMap, where).data or {}
    if not data:
        raise InputError(f"{where}: data", "(empty)", "must hold budgets")
    for key, each in data.items():
        part = f"{where}: data[{key}]"
        yield part, _parse(each, part)


def _parse(text: str, where: str) -> Any:  # noqa: ANN401 - any YAML
    if len(text) > _LONGEST_TEXT:
        raise InputError(where, f"{len(text)} characters", f"must have at most {_LONGEST_TEXT}")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(where, "(file)", why_unreadable(error, "is no YAML: ")) from None


def _convert(value: object, kind: Any, where: str) -> Any:  # noqa: ANN401 - one of the structs above
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(where, "(file)", str(error)) from None


def _units(raw: object, field: str) -> int:
    try:
        quantity = parse_quantity(raw)
    except QuantityError:
        quantity = None
    if quantity is None or raw is None or isinstance(raw, bool) or quantity.nano < 0 or not quantity.is_integer:
        raise InputError(field, str(raw), "must be a whole number of devices")
    return quantity.value()
