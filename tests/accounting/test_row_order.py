"""To which containers an allocation's rows belong where their writer left some out. The ids name the rule that decides.

It must not know how texts are read. tests/benchmarks/test_hami_pods.py compares with what was placed instead of a rule.
"""

from typing import Final

import pytest

from accounting.pod import Allocation, Container, ContainerKind, DeviceRequest, DeviceRow, FurtherRow
from accounting.row_order import rows_by_container

_KINDS: Final = {"init": ContainerKind.INIT, "sidecar": ContainerKind.SIDECAR, "app": ContainerKind.APP}
A, B, C, D = (DeviceRow(name, 100, 10) for name in "ABCD")


def containers(words: str) -> tuple[Container, ...]:
    """Read containers such as "init app:1 app:2": the number of cards asked for; "?" is an unreadable request."""
    return tuple(_container(*word.partition(":")[::2]) for word in words.split())


def _container(kind: str, count: str) -> Container:
    request = DeviceRequest(int(count), 100, 0, 10) if count.isdigit() else None
    return Container(kind, _KINDS[kind], request, misread=count == "?")


@pytest.mark.parametrize(
    "words, written, expected",
    [
        pytest.param("init app:1", [[], [A]], [[], [A]], id="rule 1: one row per container"),
        pytest.param("init:1 app", [[], [A]], [[], [A]], id="rule 1: by position whatever the spec says"),
        pytest.param("app app", [[A], [], [], []], [[A], []], id="rule 1: the plugin's empty rows at the end"),
        pytest.param("init app:1 app:1", [[A], [B]], [[], [A], [B]], id="rule 2: a plain init"),
        pytest.param("init init:1 app:1", [[A], [B]], [[], [A], [B]], id="rule 2: one of two inits asks"),
        pytest.param("init:1 app:1 app", [[A], [B]], [[A], [B], []], id="rule 2: as many apps, and one asks nothing"),
        pytest.param("sidecar app:2 app", [[A, B]], [[], [A, B], []], id="rule 2: two cards in the row"),
        pytest.param("init:1 app:2 app:2", [[A, B], [C, D]], [[], [A, B], [C, D]], id="rule 3: fewer than ask"),
        pytest.param("init app:1 app", [[A], []], [[], [A], []], id="rule 3: an empty row"),
        pytest.param("init:1 app:2 app", [[A, B], [C]], [[], [A, B], [C]], id="rule 3: rule 2 is out by its counts"),
        pytest.param("init:1 app:?", [[A]], [[], [A]], id="rule 3: it holds more than rule 2, which may be wrong"),
        pytest.param("init:1 init app:1 app app", [[A], [B], [C]], [[], [], [A], [B], [C]], id="rule 3: 3 of 5"),
        pytest.param("init:1 init init app:1 app", [[A], [B], [C]], [*[[]] * 5, [A, B, C]], id="rule 4: 3 rows for 5"),
        pytest.param("init:1 init:2 app", [[A], [B]], [[], [], [], [A, B]], id="rule 4: neither counts nor apps"),
        pytest.param("init app:1", [[A], [B], [C]], [[], [], [A, B, C]], id="rule 4: more rows than containers"),
        pytest.param(
            "sidecar:? init app:1", [[], [A], [B]], [[], [], [], [A, B]], id="rule 4: a row that may have moved"
        ),
        pytest.param("init:1 init:? app app", [[A]], [*[[]] * 4, [A]], id="rule 4: what is asked is not known"),
    ],
)
def test_whose_the_rows_are(words: str, written: list[list[DeviceRow]], expected: list[list[DeviceRow]]) -> None:
    rows = [tuple(own) for own in written]
    assert rows_by_container(rows, containers(words), "NVIDIA") == tuple(map(tuple, expected))


def _of_two(kind: str, *vendors: str) -> Container:
    requests = tuple(DeviceRequest(1, 100, 0, 0, vendor=vendor) for vendor in vendors)
    return Container(kind, _KINDS[kind], requests[0] if requests else None, requests[1:])


OTHER = FurtherRow.of("Z", 100, 0, "DCU")


@pytest.mark.parametrize(
    "asked, written, expected",
    [
        # HAMi#2335: the row of the sidecar has moved to the place of the init, where it would end with it.
        ((_of_two("sidecar", "NVIDIA"), _of_two("init", "DCU"), _of_two("app")), ((), (A,), ()), ((), (), (), (A,))),
        ((_of_two("sidecar", "NVIDIA"), _of_two("init", "DCU"), _of_two("app")), ((A,), (), ()), ((A,), (), ())),
        # The other vendor is not enabled, so it is not known that the init asks for its cards.
        ((_of_two("sidecar", "NVIDIA"), _of_two("init"), _of_two("app")), ((), (A,), ()), ((), (), (), (A,))),
        # An init's row moves to the sidecar, and the sidecar's to another init.
        (
            (_of_two("init", "NVIDIA"), _of_two("sidecar", "NVIDIA"), _of_two("init", "DCU"), _of_two("app")),
            ((), (A,), (B,), ()),
            ((), (), (), (), (A, B)),
        ),
        # Without inits it does not matter to which container a row belongs.
        ((_of_two("app", "NVIDIA"), _of_two("app", "DCU")), ((), (A,)), ((), (A,))),
    ],
    ids=["moved to an init", "where it belongs", "of a vendor that is off", "moved twice", "moved between apps"],
)
def test_rows_of_a_pod_with_several_vendors_stand_where_the_spec_agrees(
    asked: tuple[Container, ...], written: Allocation, expected: Allocation
) -> None:
    assert rows_by_container(written, asked, "NVIDIA") == expected


def test_each_vendors_rows_are_read_by_what_is_asked_of_that_vendor() -> None:
    asked = _of_two("init"), _of_two("app", "NVIDIA", "DCU"), _of_two("app", "NVIDIA")
    assert rows_by_container([(A,), (B,)], asked, "NVIDIA") == ((), (A,), (B,))
    assert rows_by_container([(OTHER,)], asked, "DCU") == ((), (OTHER,), ())
