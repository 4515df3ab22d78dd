"""Quantities are read as apimachinery does, exactly.

The tables are answers of the Kubernetes library itself. The tests must not use floats: what they expect comes from
`fractions` and `decimal`.
"""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting.errors import QuantityError
from accounting.quantity import Quantity, parse_quantity

INT64_MAX = 2**63 - 1


def nano(value: Fraction | int) -> Fraction:
    return Fraction(value) * 10**9


# -- the table of what is a legal count of GPUs ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw, value",
    [
        ("1", 1),
        (1, 1),
        (1.0, 1),
        ("1.0", 1),
        ("01", 1),
        ("+1", 1),
        (" 1 ", 1),
        ("1.", 1),
        ("1000m", 1),
        ("1000000u", 1),
        ("1000000000n", 1),
        ("2e0", 2),
        ("10e-1", 1),
        ("1E1", 10),
        (1e1, 10),
        ("1k", 1000),
        ("1Ki", 1024),
        ("0", 0),
        ("-0", 0),
        (".", 0),
        (".0", 0),
        (None, 0),
        # Digits below nano round away from zero when the text is read.
        ("0.9999999999", 1),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Mi", 2**20),
        ("1Gi", 2**30),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1.5Ki", 1536),
        ("3k", 3000),
        ("1e3", 1000),
        ("1E+3", 1000),
    ],
    ids=repr,
)
def test_a_legal_count(raw: object, value: int) -> None:
    quantity = parse_quantity(raw)
    assert quantity.is_integer
    assert quantity.nano >= 0
    assert quantity.value() == value


@pytest.mark.parametrize(
    "raw, rounded",
    [
        ("500m", 1),
        (0.5, 1),
        ("1.5", 2),
        (".5", 1),
        ("1u", 1),
        ("1n", 1),
        ("0.0001", 1),
        ("1.0000000001", 2),
        ("-1500m", -2),
        ("1e-3", 1),
        (1e-05, 1),
    ],
    ids=repr,
)
def test_a_fraction_is_read_and_is_no_integer(raw: object, rounded: int) -> None:
    quantity = parse_quantity(raw)
    assert not quantity.is_integer
    assert quantity.value() == rounded


@pytest.mark.parametrize("raw", ["-1", -1, "-1k", -1.0, "-1000m"], ids=repr)
def test_a_negative_is_read(raw: object) -> None:
    quantity = parse_quantity(raw)
    assert quantity.is_integer
    assert quantity.nano < 0


@pytest.mark.parametrize(
    "raw",
    [
        "1K",
        "1ki",
        "1mi",
        "1kI",
        "1ei",
        "1KI",
        "",
        " ",
        "+",
        "-",
        "abc",
        "1GPU",
        "0x1",
        "1_000",
        "1,5",
        "\uff11",
        "\u0661",
        "1 k",
        "1 0",
        "--1",
        "+-1",
        "1e",
        "1e+",
        "1e1.5",
        "1e1k",
        "1.2.3",
        "1mm",
        "NaN",
        "nan",
        "Inf",
        "-inf",
        "m",
        "e1",
        "Ki",
        True,
        False,
        [],
        {},
        [1],
        b"1",
        float("nan"),
        float("inf"),
        float("-inf"),
        "1" * 5000,
        "1e" + "9" * 5000,
        10**5000,
    ],
    ids=lambda raw: repr(raw)[:20] if not isinstance(raw, int) or raw < 10 else "an integer of 5001 digits",
)
def test_what_is_no_quantity(raw: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(raw)


@pytest.mark.parametrize(
    "raw, value",
    [
        ("9223372036854775807", INT64_MAX),
        ("9223372036854775808", INT64_MAX),
        ("8Ei", INT64_MAX),
        ("-8Ei", -INT64_MAX),
        ("1000000000000000000000", INT64_MAX),
        # Short numbers keep their size; the library's Value() would wrap around to 0 or to a negative.
        ("9E", 9 * 10**18),
        ("10E", 10**19),
        ("1e19", 10**19),
        (1e19, 10**19),
        # An integer, though the library's MilliValue() wraps around and calls it a fraction.
        ("9223372036854776", 9223372036854776),
        # Leading zeros do not count as digits.
        ("0000000000000000000000000010E", 10**19),
        ("7Ei", 7 * 2**60),
    ],
    ids=repr,
)
def test_the_largest_quantities_never_wrap_around(raw: object, value: int) -> None:
    quantity = parse_quantity(raw)
    assert quantity.value() == value
    assert quantity.is_integer


def test_exponents_far_outside_cost_nothing() -> None:
    assert parse_quantity("1e-999999999") == Quantity(1)
    assert parse_quantity("0e999999999") == Quantity(0)
    assert parse_quantity("1e999999999").value() > INT64_MAX


def test_milli_values_round_up_and_compare_by_number() -> None:
    assert parse_quantity("1u").milli_value() == 1
    assert parse_quantity("250m").milli_value() == 250
    assert parse_quantity("1.5").milli_value() == 1500
    assert parse_quantity("-1u").milli_value() == -1
    assert parse_quantity("1") == parse_quantity("1000m") == parse_quantity(1.0)
    assert parse_quantity("1Gi") > parse_quantity("1G")


# -- exactness ---------------------------------------------------------------------------------------------------------

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
SCALES = {suffix: Fraction(10) ** power for suffix, power in DECIMAL.items()} | {
    suffix: Fraction(2) ** power for suffix, power in BINARY.items()
}
SIGNS = st.sampled_from(["", "+", "-"])
DIGITS = st.text("0123456789", max_size=24)


def away_from_zero(value: Fraction) -> int:
    whole = abs(value.numerator) // value.denominator
    size = whole + (whole * value.denominator != abs(value.numerator))
    return size if value >= 0 else -size


def expected_nano(sign: str, whole: str, fraction: str, scale: Fraction, *, binary: bool) -> int:
    """Return the number in nano units, rounded away from zero; capped where the library leaves its fast path."""
    size = Fraction(int(whole + fraction or "0"), 10 ** len(fraction)) * scale
    rounded = away_from_zero(nano(size))
    if binary or len(whole.lstrip("0") or "0") + len(fraction) > 18:
        rounded = min(rounded, INT64_MAX * 10**9)
    return -rounded if sign == "-" else rounded


@given(SIGNS, DIGITS, DIGITS, st.sampled_from(sorted(SCALES)))
@example("", "", "0000000001", "")
@example("-", "8", "", "Ei")
@example("", "0", "000000000000000000001", "E")
def test_any_number_with_a_suffix_is_exact(sign: str, whole: str, fraction: str, suffix: str) -> None:
    quantity = parse_quantity(f"{sign}{whole}.{fraction}{suffix}")
    assert quantity.nano == expected_nano(sign, whole, fraction, SCALES[suffix], binary=suffix in BINARY)


@given(SIGNS, st.text("0123456789", min_size=1, max_size=17), st.integers(-30, 30), st.sampled_from("eE"))
def test_any_number_with_an_exponent_is_exact(sign: str, whole: str, exponent: int, letter: str) -> None:
    quantity = parse_quantity(f"{sign}{whole}{letter}{exponent}")
    assert quantity.nano == expected_nano(sign, whole, "", Fraction(10) ** exponent, binary=False)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_a_json_number_is_the_decimal_that_it_was_written_as(number: float) -> None:
    written = Fraction(Decimal(repr(number)))
    assert parse_quantity(number).nano == away_from_zero(nano(written))


@given(st.integers(-(10**17), 10**17), st.integers(-(10**17), 10**17))
def test_a_sum_of_tenths_is_exact(left: int, right: int) -> None:
    """0.1 + 0.2 is 0.3, unlike in floats."""
    parsed = [parse_quantity(f"{tenths}e-1").nano for tenths in (left, right)]
    assert sum(parsed) == parse_quantity(left + right).nano // 10


@given(st.integers())
def test_rounding_never_makes_a_quantity_smaller(number: int) -> None:
    quantity = Quantity(number)
    for rounded, unit in ((quantity.value(), 10**9), (quantity.milli_value(), 10**6)):
        assert rounded == away_from_zero(Fraction(number, unit))
        assert abs(rounded) * unit >= abs(number)
        assert abs(rounded) * unit - abs(number) < unit
    assert quantity.is_integer == (Fraction(number, 10**9).denominator == 1)


@given(st.text(max_size=12))
def test_any_other_text_is_refused_and_never_breaks(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except QuantityError:
        return
    assert set(text.strip()) <= set("+-.0123456789numkMGTPEei K")
    assert isinstance(quantity.nano, int)
