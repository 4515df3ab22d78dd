"""The text of an allocation: what is written is read back, and no damage makes a pod hold less.

It must not use the decoder to compute what is expected: it splits the text itself.
"""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accounting.codec import decode_allocation, encode_allocation
from accounting.pod import Allocation, DeviceRow, UnreadableAllocation
from tests.accounting.case_builders import rows
from tests.builders import make_apps

FIELD = "annotations[hami.io/vgpu-devices-allocated]"
A, B = ("GPU-a", 3000, 30), ("GPU-b", 500, 0)

UUIDS = st.text("GPUabc0123456789-/.", min_size=1, max_size=40)
ROWS = st.builds(DeviceRow, UUIDS, st.integers(0, 2**31 - 1), st.integers(0, 10_000))
ALLOCATIONS = st.lists(st.lists(ROWS, max_size=3).map(tuple), max_size=6).map(tuple)
#: The parts that texts are made of; damaged texts mix them.
PIECES = st.sampled_from([*",,,::;;", "GPU-a", "GPU-b", "NVIDIA", "0", "30", "3000", "-1", "+5", "x", " ", "1.5", "\n"])


def decode(text: str, containers: int) -> Allocation | UnreadableAllocation:
    return decode_allocation(text, make_apps(containers), FIELD)


def unreadable(text: str, containers: int) -> UnreadableAllocation:
    decoded = decode(text, containers)
    assert isinstance(decoded, UnreadableAllocation)
    assert decoded.why.field == FIELD
    return decoded


# -- what is written ---------------------------------------------------------------------------------------------------


def test_every_row_ends_with_a_semicolon() -> None:
    assert encode_allocation(rows([A]), "NVIDIA") == "GPU-a,NVIDIA,3000,30:;"
    assert (
        encode_allocation(rows([A, B], [], [B]), "NVIDIA")
        == "GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,500,0:;;GPU-b,NVIDIA,500,0:;"
    )
    assert encode_allocation(rows([], []), "NVIDIA") == ";;"
    assert encode_allocation((), "NVIDIA") == ""


@given(ALLOCATIONS)
def test_what_was_written_comes_back(allocation: Allocation) -> None:
    assert decode(encode_allocation(allocation, "NVIDIA"), len(allocation)) == allocation


@given(ALLOCATIONS, st.integers(0, 4))
def test_rewriting_by_the_plugin_adds_semicolons_and_nothing_else(allocation: Allocation, more: int) -> None:
    assert decode(encode_allocation(allocation, "NVIDIA") + ";" * more, len(allocation)) == allocation


# -- odd forms that are read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, expected",
    [
        ("GPU-a,NVIDIA,3000,30:;", rows([A])),
        ("GPU-a,NVIDIA,3000,30:GPU-b,NVIDIA,500,0:;", rows([A, B])),
        (";GPU-a,NVIDIA,3000,30:;", rows([], [A])),
        (";;GPU-a,NVIDIA,3000,30:;", rows([], [], [A])),
        ("GPU-a,NVIDIA,3000,30:;;", rows([A], [])),
        ("GPU-a,NVIDIA,3000,30:;;;;", rows([A])),
        (",,0,0:;GPU-a,NVIDIA,3000,30:;,,0,0:;", rows([], [A], [])),
        (",NVIDIA,0,0:;", rows([])),
        (";", rows([])),
        (";;;", rows([], [], [])),
        ("", ()),
        ("GPU-a,NVIDIA,3000,30:", rows([A])),
        ("GPU-a,NVIDIA,3000,30", rows([A])),
        ("GPU-a,,3000,30:;", rows([A])),
        ("GPU-a,NVIDIA-Tesla P4,3000,30:;", rows([A])),
        ("GPU-a,NVIDIA,3000,30,more,fields:;", rows([A])),
        ("GPU-a,NVIDIA,3000,30::GPU-b,NVIDIA,500,0:;", rows([A, B])),
        (":;GPU-a,NVIDIA,3000,30:;", rows([], [A])),
        ("  GPU-a,NVIDIA,3000,30:;\n", rows([A])),
        ("GPU-a,NVIDIA,+3000,030:;", rows([A])),
        ("GPU-a,NVIDIA,-0,0:;", rows([("GPU-a", 0, 0)])),
        ("GPU-a,NVIDIA,2147483647,100:;", rows([("GPU-a", 2**31 - 1, 100)])),
        # Two parts of one card that the hardware divides.
        ("GPU-a,NVIDIA,9984,29:GPU-a,NVIDIA,9984,29:;", rows([("GPU-a", 9984, 29), ("GPU-a", 9984, 29)])),
    ],
    ids=lambda value: repr(value) if isinstance(value, str) else "rows",
)
def test_odd_forms_are_read(text: str, expected: Allocation) -> None:
    assert decode(text, len(expected)) == expected


@pytest.mark.parametrize(
    "nothing", ["", ",,0,0:", ",NVIDIA,0,0:", ":"], ids=["empty", "zeros", "zeros with type", "colon"]
)
def test_every_spelling_of_no_device_keeps_its_place(nothing: str) -> None:
    text = f"{nothing};{nothing};GPU-a,NVIDIA,3000,30:;{nothing};"
    assert decode(text, 4) == rows([], [], [A], [])


# -- texts that cannot be trusted --------------------------------------------------------------------------------------

AB = ("GPU-a", "GPU-b")


@pytest.mark.parametrize(
    "text, containers, uuids, why",
    [
        ("junk", 1, (), "must be uuid,type,memory,cores"),
        ("junk:;", 1, (), "must be uuid,type,memory,cores"),
        ("GPU-a,NVIDIA,3000,30: ;", 1, ("GPU-a",), "must be uuid,type,memory,cores"),
        ("GPU-a,NVIDIA,3000:;", 1, ("GPU-a",), "must be uuid,type,memory,cores"),
        ("GPU-a,:;", 1, ("GPU-a",), "must be uuid,type,memory,cores"),
        (",:;", 1, (), "must be uuid,type,memory,cores"),
        ("GPU-a,NVIDIA,x,30:;", 1, ("GPU-a",), "memory 'x' is not an integer"),
        ("GPU-a,NVIDIA,3000,x:;", 1, ("GPU-a",), "cores 'x' is not an integer"),
        ("GPU-a,NVIDIA,,30:;", 1, ("GPU-a",), "memory '' is not an integer"),
        ("GPU-a,NVIDIA,3000.0,30:;", 1, ("GPU-a",), "memory '3000.0' is not an integer"),
        ("GPU-a,NVIDIA, 3000,30:;", 1, ("GPU-a",), "memory ' 3000' is not an integer"),
        ("GPU-a,NVIDIA,3k,30:;", 1, ("GPU-a",), "memory '3k' is not an integer"),
        ("GPU-a,NVIDIA,3_000,30:;", 1, ("GPU-a",), "memory '3_000' is not an integer"),
        ("GPU-a,NVIDIA,\u0663,30:;", 1, ("GPU-a",), "memory '\u0663' is not an integer"),
        ("GPU-a,NVIDIA,-1,30:;", 1, ("GPU-a",), "memory -1 is negative"),
        ("GPU-a,NVIDIA,3000,-1:;", 1, ("GPU-a",), "cores -1 is negative"),
        ("GPU-a,NVIDIA,2147483648,30:;", 1, ("GPU-a",), "memory 2147483648 is more than 2147483647"),
        ("GPU-a,NVIDIA,3000,2147483647:;", 1, ("GPU-a",), "cores 2147483647 is more than 10000"),
        (",NVIDIA,3000,30:;", 1, (), "names no card"),
        (",NVIDIA,0,30:;", 1, (), "names no card"),
        ("", 1, (), "names no card in 0 rows for 1 containers"),
        ("  ", 1, (), "names no card in 0 rows for 1 containers"),
        (";;", 3, (), "names no card in 2 rows for 3 containers"),
        # One bad part anywhere makes the whole text unreadable, and the cards of all parts are named.
        ("GPU-b,NVIDIA,500,0:;GPU-a,NVIDIA,x,30:;", 2, AB, "memory 'x' is not an integer"),
        ("GPU-a,NVIDIA,x,30:;GPU-b,NVIDIA,500,0:;", 2, AB, "memory 'x' is not an integer"),
        ("GPU-b,NVIDIA,500,0:GPU-a:;", 1, ("GPU-b",), "must be uuid,type,memory,cores"),
        # A row beyond the containers is read and checked too.
        ("GPU-b,NVIDIA,500,0:;junk;", 1, ("GPU-b",), "must be uuid,type,memory,cores"),
    ],
)
def test_a_text_that_cannot_be_trusted(text: str, containers: int, uuids: tuple[str, ...], why: str) -> None:
    found = unreadable(text, containers)
    assert found.readable_uuids == uuids
    assert found.why.why == why


def test_a_number_of_thousands_of_digits_is_unreadable_and_breaks_nothing() -> None:
    found = unreadable(f"GPU-a,NVIDIA,{'9' * 5000},0:;", 1)
    assert found.readable_uuids == ("GPU-a",)
    assert len(str(found.why)) < 400


def test_a_long_text_is_shortened_in_the_message() -> None:
    assert len(unreadable(";" * 1000, 2000).why.value) == 120


# -- rows that are not one per container -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, containers, whole",
    [
        ("GPU-a,NVIDIA,3000,30:;", 2, [A]),
        ("GPU-a,NVIDIA,3000,30:;" * 7, 8, [A] * 7),
        ("GPU-a,NVIDIA,3000,30:;GPU-b,NVIDIA,500,0:;", 1, [A, B]),
        (";GPU-a,NVIDIA,3000,30:;", 1, [A]),
        ("GPU-a,NVIDIA,3000,30:;", 0, [A]),
    ],
    ids=["1 for 2", "7 for 8", "2 for 1", "2 for 1, the first empty", "1 for 0"],
)
def test_rows_that_cannot_be_told_apart_are_the_pods(
    text: str, containers: int, whole: list[tuple[str, int, int]]
) -> None:
    assert decode(text, containers) == rows(*[[]] * containers, whole)


# -- no damage makes a pod hold less -----------------------------------------------------------------------------------


def parts_of(text: str) -> list[list[str]]:
    """Return the fields of every part that is not empty, without the decoder."""
    return [part.split(",") for part in re.split("[:;]", text.strip()) if part]


@given(st.lists(PIECES, max_size=40).map("".join), st.integers(0, 5))
def test_whatever_is_read_holds_all_that_the_text_says(text: str, containers: int) -> None:
    decoded = decode(text, containers)
    if isinstance(decoded, UnreadableAllocation):
        named = {fields[0] for fields in parts_of(text) if len(fields) > 1 and fields[0]}
        assert decoded.readable_uuids == tuple(sorted(named))
        return
    assert len(decoded) in (containers, containers + 1)
    found = [(row.uuid, row.memory, row.cores) for own in decoded for row in own]
    said = [(fields[0], int(fields[2]), int(fields[3])) for fields in parts_of(text)]
    assert found == [each for each in said if each != ("", 0, 0)]


@given(ALLOCATIONS, st.data())
def test_of_a_text_cut_between_rows_the_pod_holds_all_that_is_left(allocation: Allocation, data: st.DataObject) -> None:
    text = encode_allocation(allocation, "NVIDIA")
    assume(allocation)
    ends = [0, *(match.end() for match in re.finditer(";", text))]
    at = data.draw(st.integers(0, len(ends) - 2))
    left = tuple(row for own in allocation[:at] for row in own)
    expected = (*((),) * len(allocation), left) if left else ()
    decoded = decode(text[: ends[at]], len(allocation))
    assert (() if isinstance(decoded, UnreadableAllocation) else decoded) == expected


@given(ALLOCATIONS, st.data())
def test_a_broken_part_is_never_left_out(allocation: Allocation, data: st.DataObject) -> None:
    text = encode_allocation(allocation, "NVIDIA")
    places = [match.start() for match in re.finditer(",", text)]
    assume(places)
    broken = data.draw(st.sampled_from(places))
    unreadable(text[:broken] + "-" + text[broken + 1 :], len(allocation))


@given(ALLOCATIONS.filter(any))
def test_too_few_rows_are_never_taken_for_empty_ones(allocation: Allocation) -> None:
    decoded = decode(encode_allocation(allocation, "NVIDIA"), len(allocation) + 1)
    assert not isinstance(decoded, UnreadableAllocation)
    assert decoded[-1] == tuple(row for own in allocation for row in own)
