"""The webhook reads GPU counts and quota keys as Kubernetes does (upstream formulas 12 and 8)."""

import pytest

from tests.admission.reviews import admitting, limits, pod
from tests.extender.objects import asks, container, quota

#: JSON value -> its count, as apimachinery itself answered.
LEGAL: list[tuple[object, int]] = [
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
    ("2e0", 2),
    ("10e-1", 1),
    (1e1, 10),
    ("1k", 1000),
    ("1Ki", 1024),
    ("0", 0),
    ("-0", 0),
    (".", 0),
    (".0", 0),
    ("0.9999999999", 1),
]
REFUSED = [
    *("500m", 0.5, "1.5", ".5", "1u", "1n", "0.0001", "1.0000000001"),
    *("-1", -1),
    *("1K", "1ki", "", "abc", "1GPU", "0x1", "1_000", "\uff11", True, "NaN", "Inf"),
    # Legal for the API server, where it wraps; it is refused here, as no node has so many cards.
    *("9223372036854775807", "8Ei", "9E", "10E", "1e19", "9223372036854776"),
]


@pytest.mark.parametrize("value, count", LEGAL, ids=map(repr, (value for value, _ in LEGAL)))
async def test_a_legal_count_is_charged_as_what_it_is(value: object, count: int) -> None:
    for limit in (count, count - 1):
        if limit < 0:
            continue
        async with admitting(quota({"requests.nvidia.com/gpu": str(limit)}, "team")) as webhooks:
            answer = await webhooks.admit(pod(container("a", limits(count=value))))
            assert answer.allowed == (limit == count), answer.message


@pytest.mark.parametrize("value", REFUSED, ids=repr)
async def test_an_illegal_count_is_denied_with_its_field(value: object) -> None:
    async with admitting() as webhooks:
        answer = await webhooks.admit(pod(container("a", limits(count=value))))
        assert answer.code == 422
        assert answer.message.startswith("spec.containers[a].resources.limits[nvidia.com/gpu]: ")


@pytest.mark.parametrize("value", [[], {}])
async def test_what_is_no_scalar_is_denied(value: object) -> None:
    async with admitting() as webhooks:
        answer = await webhooks.admit(pod(container("a", limits(count=value))))
        assert answer.code == 422


async def test_null_is_zero() -> None:
    async with admitting(quota({"requests.nvidia.com/gpu": "0"}, "team")) as webhooks:
        assert (await webhooks.admit(pod(container("a", {"limits": {"nvidia.com/gpu": None}})))).allowed


@pytest.mark.parametrize(
    "key, limits_something",
    [("requests.nvidia.com/gpu", True), ("limits.nvidia.com/gpu", True), ("nvidia.com/gpu", False)],
)
async def test_which_quota_keys_limit(key: str, limits_something: bool) -> None:
    """The API server enforces `requests.` alone; `limits.` is HAMi's spelling. The bare name matches nothing."""
    async with admitting(quota({key: "0"}, "team")) as webhooks:
        assert (await webhooks.admit(pod(container("a", asks(1, 5))))).allowed != limits_something
