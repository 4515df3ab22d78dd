"""Label and field selectors: reads them and matches stored objects.

It exists so that lists and watches select in the same way. It must not decode objects: the fields that selectors read
are kept apart when an object is stored. Invariant: a selector that this module does not understand is a 400, never a
match.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.apiserver.resources import Json, Resource
from tests.apiserver.statuses import ApiError
from tests.apiserver.stored import Stored

Test = Callable[[str | None], bool]
Term = tuple[str, Test]

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_COMPARISON = re.compile(rf"\s*({_KEY})\s*(==|=|!=|>|<)\s*([A-Za-z0-9._-]*)\s*")
_EXISTENCE = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_FIELD = re.compile(r"\s*([A-Za-z0-9.]+)\s*(==|=|!=)((?:\\.|[^,\\=])*)")


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list or a watch selects."""

    namespace: str = ""
    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()

    @property
    def selects_all(self) -> bool:
        """Whether it selects by namespace alone."""
        return not self.labels and not self.fields

    def matches(self, row: Stored) -> bool:
        """Whether the object is selected."""
        if self.namespace and row.namespace != self.namespace:
            return False
        # Loops, since all() makes a generator for each of 100,000 rows.
        for key, test in self.fields:
            if not test(row.fields.get(key)):
                return False
        for key, test in self.labels:  # noqa: SIM110 - as above
            if not test(row.labels.get(key)):
                return False
        return True


def read_selector(resource: Resource, namespace: str, label_selector: str, field_selector: str) -> Selector:
    """Return the selector of a query. Raises ApiError 400."""
    return Selector(namespace, read_labels(label_selector), read_fields(resource, field_selector))


def read_labels(text: str) -> tuple[Term, ...]:
    """Read a label selector: a=b, a==b, a!=b, a in (b,c), a notin (b,c), a, !a, a>1, a<1, joined by commas."""
    terms: list[Term] = []
    position = 0
    while text[position:].strip():
        term, position = _label_term(text, position)
        terms.append(term)
        if position < len(text):
            if text[position] != ",":
                raise _unreadable(text)
            position += 1
    return tuple(terms)


def read_fields(resource: Resource, text: str) -> tuple[Term, ...]:
    """Read a field selector: a=b, a==b, a!=b, joined by commas; a backslash escapes."""
    terms: list[Term] = []
    position = 0
    while position < len(text):
        found = _FIELD.match(text, position)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise ApiError(400, f"invalid selector: {text!r}; can't understand {text[position:]!r}")
        key, operator, value = found[1], found[2], re.sub(r"\\(.)", r"\1", found[3])
        if key not in resource.selectable:
            raise ApiError(400, f"field label not supported: {key}")
        terms.append((key, _differs(value) if operator == "!=" else _equals(value)))
        position = found.end() + 1
    return tuple(terms)


def matches_labels(selector: Json | None, labels: Json) -> bool:
    """Whether a LabelSelector of an object selects these labels; without a selector nothing is selected."""
    if selector is None:
        return False
    terms: list[Term] = [(key, _equals(value)) for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        values = frozenset(each.get("values") or ())
        tests = {"In": _one_of(values), "NotIn": _none_of(values), "Exists": _present, "DoesNotExist": _absent}
        terms.append((each["key"], tests[each["operator"]]))
    return all(test(labels.get(key)) for key, test in terms)


def _label_term(text: str, position: int) -> tuple[Term, int]:
    found = _SET.match(text, position)
    if found is not None:
        values = frozenset(value.strip() for value in found[3].split(","))
        return (found[1], _one_of(values) if found[2] == "in" else _none_of(values)), found.end()
    found = _COMPARISON.match(text, position)
    if found is not None:
        return (found[1], _comparison(text, found[2], found[3])), found.end()
    found = _EXISTENCE.match(text, position)
    if found is not None:
        return (found[2], _absent if found[1] else _present), found.end()
    raise _unreadable(text)


def _comparison(text: str, operator: str, value: str) -> Test:
    if operator == "!=":
        return _differs(value)
    if operator in ("=", "=="):
        return _equals(value)
    if not re.fullmatch(r"-?\d+", value):
        raise _unreadable(text)
    limit = int(value)

    def compare(actual: str | None) -> bool:
        if actual is None or not re.fullmatch(r"-?\d+", actual):
            return False
        return int(actual) > limit if operator == ">" else int(actual) < limit

    return compare


def _equals(value: str) -> Test:
    return lambda actual: actual == value


def _differs(value: str) -> Test:
    return lambda actual: actual != value


def _one_of(values: frozenset[str]) -> Test:
    return lambda actual: actual in values


def _none_of(values: frozenset[str]) -> Test:
    return lambda actual: actual not in values


def _present(actual: str | None) -> bool:
    return actual is not None


def _absent(actual: str | None) -> bool:
    return actual is None


def _unreadable(text: str) -> ApiError:
    return ApiError(400, f"unable to parse requirement: {text!r}")
