"""The few exceptions of this package. They mean a bug, or text that is not a quantity; never an expected outcome.

Expected outcomes (a pod that does not fit, a request that is not legal) are values; see `status`.
"""


class InvariantViolation(Exception):
    """The caller or this package broke a rule that must always hold, for example a pod booked on two nodes."""


class QuantityError(ValueError):
    """Text that Kubernetes' quantity grammar does not accept."""
