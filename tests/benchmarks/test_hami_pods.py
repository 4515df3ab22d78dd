"""Random pods, written as each version of HAMi does, are read as they were placed. `make soak` reads 100,000."""

from random import Random

import pytest

from accounting.pod import DeviceRow
from benchmarks.allocation_soak import compare, difference_of
from benchmarks.hami_pods import Version, encoded, written_pod

A, B = DeviceRow("A", 1, 2), DeviceRow("B", 3, 0)


def test_pods_of_every_version_are_read_as_what_was_placed() -> None:
    counts, difference = compare(1_200, seed=1)
    assert difference is None
    for version in Version:
        assert counts[version]["exact"] > 120, version
    assert counts[Version.V2_10]["ambiguous"] > 0


def test_the_text_is_hamis() -> None:
    assert encoded([[A], [], [A, B]], "NVIDIA") == "A,NVIDIA,1,2:;;A,NVIDIA,1,2:B,NVIDIA,3,0:;"


@pytest.mark.parametrize("key", ["placed", "manifest"])
def test_a_pod_that_is_read_as_less_is_found(key: str) -> None:
    """The comparison itself can fail."""
    written = next(each for each in (written_pod(Random(n), Version.V2_9) for n in range(99)) if each.exact)
    assert difference_of(written)[0] is None
    if key == "placed":
        assert isinstance(written.placed.allocation, tuple)
        rows = tuple((*own, DeviceRow("NVIDIA-9", 1, 0)) for own in written.placed.allocation)
        damaged = written._replace(placed=written.placed._replace(allocation=rows))
    else:
        texts = {name: text.replace("A-", "A-9") for name, text in written.manifest["metadata"]["annotations"].items()}
        meta = written.manifest["metadata"] | {"annotations": texts}
        damaged = written._replace(manifest=written.manifest | {"metadata": meta})
    assert str(difference_of(damaged)[0]).startswith("less than the truth")
