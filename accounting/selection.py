"""Which cards a pod may use at all: by vendor, UUID, model, mode and NUMA node.

Why it exists: a pod's selecting annotations become one value and three yes/no questions. It must not know usage.
Invariant: an answer depends on the card and the selection alone.
Source: HAMi v2.10's annotations; types are matched by whole tokens, not by substring, so that "A10" does not take an
A100 (HAMi#295, HAMi#1485).
"""

import re
from dataclasses import dataclass

from accounting.mig_profiles import MIG_MODE
from accounting.vendor import DEFAULT_VENDOR_KEY

_TOKEN = re.compile(r"[0-9a-z]+")
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})

Tokens = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The cards that a pod accepts. Empty lists set no limit."""

    use_uuids: frozenset[str] = frozenset()
    nouse_uuids: frozenset[str] = frozenset()
    use_types: tuple[Tokens, ...] = ()
    nouse_types: tuple[Tokens, ...] = ()
    modes: str = ""
    """A card fits if its mode is a substring of this text; empty sets no limit."""
    numa_bind: bool = False
    """All cards of one container come from one NUMA node."""
    vendor: str = DEFAULT_VENDOR_KEY
    """Key of the one vendor whose cards are meant."""

    @property
    def limits_types(self) -> bool:
        """Whether models are limited at all."""
        return bool(self.use_types or self.nouse_types)

    @property
    def limits_uuids(self) -> bool:
        """Whether UUIDs are limited at all."""
        return bool(self.use_uuids or self.nouse_uuids)

    def accepts_uuid(self, uuid: str) -> bool:
        """Whether the card may be used by its UUID; "nouse" wins over "use"."""
        return uuid not in self.nouse_uuids and (not self.use_uuids or uuid in self.use_uuids)

    def accepts_type(self, model: str) -> bool:
        """Whether the card may be used by its registered model."""
        tokens = type_tokens(model)
        if any(contains(tokens, entry) for entry in self.nouse_types):
            return False
        return not self.use_types or any(contains(tokens, entry) for entry in self.use_types)

    def accepts_mode(self, mode: str, *, mig: bool = False) -> bool:
        """Whether the pod accepts the card's mode. Only the search on cards in MIG mode, with `mig`, accepts those."""
        return (mig or mode != MIG_MODE) and (not self.modes or mode in self.modes)


def parse_list(text: str) -> tuple[str, ...]:
    """Split a comma list; blanks around entries and empty entries are dropped."""
    return tuple(entry for entry in (part.strip() for part in text.split(",")) if entry)


def type_tokens(text: str) -> Tokens:
    """Split a model name into its tokens: "NVIDIA A100-SXM4-80GB" -> nvidia, a100, sxm4, 80gb."""
    return tuple(_TOKEN.findall(text.lower()))


def parse_types(text: str) -> tuple[Tokens, ...]:
    """Read a comma list of model names; an entry without any token matches no model."""
    return tuple(map(type_tokens, parse_list(text)))


def parse_bool(text: str) -> bool | None:
    """Read a boolean as Go's strconv.ParseBool does; None if it is none."""
    if text in _TRUE:
        return True
    return False if text in _FALSE else None


def contains(tokens: Tokens, wanted: Tokens) -> bool:
    """Return whether `wanted` is a run of whole tokens in `tokens`. An empty list matches nothing."""
    return bool(wanted) and any(tokens[at : at + len(wanted)] == wanted for at in range(len(tokens) - len(wanted) + 1))
