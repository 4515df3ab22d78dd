"""Kubernetes quantities, read exactly.

Why it exists: requests arrive as "2", "3k", "16Gi", "1500m" or 1e1, and a float on the way would make 0.1 + 0.2 differ
from 0.3. It must not know what a resource means. Invariant: a parsed quantity equals what apimachinery's
`resource.ParseQuantity` holds (digits below nano round away from zero; values off its fast path are capped at int64's
maximum), and `value()` rounds as `Quantity.Value()` does, except that nothing ever wraps around.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from accounting.errors import QuantityError

_NANO = 10**9
_INT64_MAX = 2**63 - 1
#: Decimal digits that apimachinery's int64 fast path takes; longer numbers go through the capped slow path.
_FAST_DIGITS = 18
_BINARY_EXPONENT = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_EXPONENT = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
#: Longer texts are refused: Python converts at most 4300 digits. No API server writes one.
_LONGEST_TEXT = 4096
#: Exponents beyond this are far outside every legal value and would only build huge integers.
_EXPONENT_LIMIT = 400
_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?P<point>\.?)(?P<fraction>[0-9]*)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE]?)|[eE](?P<exponent>[+-]?[0-9]+))",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact quantity in units of 1e-9, as apimachinery keeps it."""

    nano: int

    @property
    def is_integer(self) -> bool:
        """Whether the quantity is a whole number ("1", "1000m", "1e0")."""
        return self.nano % _NANO == 0

    def value(self) -> int:
        """Return the whole number, fractions rounded away from zero, as `Quantity.Value()` does."""
        return _divide_away_from_zero(self.nano, _NANO)

    def milli_value(self) -> int:
        """Return thousandths, rounded away from zero, as `Quantity.MilliValue()` does."""
        return _divide_away_from_zero(self.nano, _NANO // 1000)


def parse_quantity(raw: object) -> Quantity:
    """Read a JSON string or number as a quantity.

    Raises `QuantityError` for anything else and for text outside the grammar. JSON null is 0, as in apimachinery.
    """
    if isinstance(raw, str):
        return _parse_text(raw.strip())
    if raw is None:
        return Quantity(0)
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        message = "not a quantity"
        raise QuantityError(message)
    if isinstance(raw, int) and raw.bit_length() > 3 * _LONGEST_TEXT:
        message = "is too long"
        raise QuantityError(message)
    return _parse_text(repr(raw))


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> Quantity:
    if len(text) > _LONGEST_TEXT:
        message = "is too long"
        raise QuantityError(message)
    match = _GRAMMAR.fullmatch(text)
    if match is None or not (match["whole"] or match["point"]):
        message = "not a quantity"
        raise QuantityError(message)
    whole, fraction = match["whole"], match["fraction"]
    nano = _scaled(int(whole + fraction or "0"), len(fraction), match["suffix"], match["exponent"])
    if _leaves_fast_path(whole, fraction, match["suffix"]):
        nano = min(nano, _INT64_MAX * _NANO)
    return Quantity(-nano if match["sign"] == "-" else nano)


def _scaled(digits: int, fraction_digits: int, suffix: str | None, exponent: str | None) -> int:
    """Return digits x 10^-fraction_digits x the suffix, in nano units, rounded away from zero."""
    if suffix in _BINARY_EXPONENT:
        return _divide_away_from_zero((digits << _BINARY_EXPONENT[suffix]) * _NANO, 10**fraction_digits)
    power = int(exponent) if exponent is not None else _DECIMAL_EXPONENT[suffix or ""]
    power = max(-_EXPONENT_LIMIT, min(_EXPONENT_LIMIT, power)) + 9 - fraction_digits
    return digits * 10**power if power >= 0 else _divide_away_from_zero(digits, 10**-power)


def _leaves_fast_path(whole: str, fraction: str, suffix: str | None) -> bool:
    # Leading zeros are no digits.
    return suffix in _BINARY_EXPONENT or len(whole.lstrip("0") or "0") + len(fraction) > _FAST_DIGITS


def _divide_away_from_zero(numerator: int, denominator: int) -> int:
    quotient = -(-abs(numerator) // denominator)
    return quotient if numerator >= 0 else -quotient
