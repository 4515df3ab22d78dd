"""Numbers that a command's options take.

It exists so that a number of zero or below is an error that names the option and the value. It must not know any
command. Invariant: what is returned is above zero.
"""

import argparse
import math


def positive(text: str) -> int:
    """Return a number of things."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least 1")
    return number


def above_zero(text: str) -> float:
    """Return seconds, or a rate."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (number > 0 and math.isfinite(number)):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number above 0")
    return number
