"""What a pod holds, from the text of its rows: the quick reading says what the slow one does, or nothing.

It must not know the pattern of the quick reading. Tests ask which texts it takes only where it would else be useless.
"""

from hypothesis import given
from hypothesis import strategies as st

from accounting.codec import decode_allocation, encode_allocation
from accounting.holdings import held_by
from accounting.plain_rows import held_by_text
from accounting.pod import Allocation, Container, ContainerKind, DeviceRequest, DeviceRow, UnreadableAllocation

_KINDS = st.sampled_from(ContainerKind)
_UUIDS = st.sampled_from(("GPU-a", "GPU-b", "GPU-c", "MIG-a[1-0]", "x y", "\x00NVIDIA\x00GPU-a"))
_ROWS = st.builds(
    DeviceRow, _UUIDS, st.sampled_from((0, 1, 7, 999_999_999, 2**31 - 1)), st.sampled_from((0, 1, 99, 100, 200, 10_000))
)
_PLAIN_ROWS = st.builds(DeviceRow, st.sampled_from(("GPU-a", "GPU-b")), st.integers(0, 50_000), st.integers(0, 100))
#: The parts that texts are made of; damaged texts mix them.
_PIECES = st.sampled_from([*",,,::;;]", "GPU-a", "GPU-b", "0", "30", "-1", "+5", "x", " ", "\n", "\x00", "²", "٣"])


@st.composite
def _pods(draw: st.DrawFn, rows: st.SearchStrategy[DeviceRow], most: int) -> tuple[tuple[Container, ...], Allocation]:
    """Containers and their rows."""
    allocation = draw(st.lists(st.lists(rows, max_size=most).map(tuple), max_size=6).map(tuple))
    kinds = draw(st.lists(_KINDS, min_size=len(allocation), max_size=len(allocation)))
    requests = [draw(st.sampled_from((None, DeviceRequest(1, 1, 0, 0), DeviceRequest(2, 1, 0, 0)))) for _ in kinds]
    return tuple(map(Container, "abcdef", kinds, requests)), allocation


def _agrees(text: str, containers: tuple[Container, ...]) -> None:
    held = held_by_text(text, containers)
    if held is None:
        return
    allocation = decode_allocation(text, containers, "field")
    assert not isinstance(allocation, UnreadableAllocation)
    assert held == held_by(containers, allocation)
    assert any(allocation)


@given(_pods(_PLAIN_ROWS, 1))
def test_plain_rows_are_read_and_say_what_the_rows_do(pod: tuple[tuple[Container, ...], Allocation]) -> None:
    containers, allocation = pod
    held = held_by_text(encode_allocation(allocation, "NVIDIA"), containers)
    placed = list(zip(containers, allocation, strict=True))
    init_has_a_card = any(own and each.kind is ContainerKind.INIT for each, own in placed)
    is_left = not any(allocation) or (init_has_a_card and any(each.request and not own for each, own in placed))
    assert held == (None if is_left else held_by(containers, allocation))


@given(_pods(_ROWS, 2), st.integers(-1, 2), st.sampled_from(("", ";", ";;", " ", "\n", "GPU-a,NVIDIA,1,2:;")))
def test_other_rows_are_read_alike_or_not_at_all(
    pod: tuple[tuple[Container, ...], Allocation], more: int, rest: str
) -> None:
    """This holds also for more or fewer rows than containers."""
    containers, allocation = pod
    further = Container("more", ContainerKind.INIT), Container("more", ContainerKind.APP)
    wanted = (*containers, *further)[: max(0, len(containers) + more)]
    _agrees(encode_allocation(allocation, "NVIDIA") + rest, wanted)


@given(_pods(_PLAIN_ROWS, 1), st.data())
def test_damaged_texts_are_read_alike_or_not_at_all(
    pod: tuple[tuple[Container, ...], Allocation], data: st.DataObject
) -> None:
    containers, allocation = pod
    text = encode_allocation(allocation, "NVIDIA")
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, min(len(text), at + 2)))
    _agrees(text[:at] + "".join(data.draw(st.lists(_PIECES, max_size=3))) + text[until:], containers)


def test_a_pod_of_very_many_containers_is_left_to_the_slow_reading() -> None:
    containers = (Container("c", ContainerKind.APP),) * 300
    assert held_by_text("GPU-a,NVIDIA,1,1:;" * 300, containers) is None


def test_uuids_are_shared() -> None:
    text = "GPU-a,NVIDIA,1,1:;GPU-b,NVIDIA,1,1:;"
    held = held_by_text(text, (Container("c", ContainerKind.APP),) * 2, {"GPU-a": "A", "GPU-b": "B"}.__getitem__)
    assert held is not None
    assert [use.uuid for use in held.steady] == ["A", "B"]
