"""Random clusters to compare HAMi's numbers with ours: the same seed, the same files; and a difference is found."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.hami_clusters import REASONS, Unexplained, cluster, compare, main, ours, reasons, write

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
READER = "2.10.0 with #2723"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("clusters")
    write(made, 4, seed=1)
    return made


def counted(folder: Path) -> dict[str, Json]:
    """Our own numbers, as a reader would give them."""
    found = {path.stem: ours(path) for path in sorted(folder.glob("cluster-???.json"))}
    return {name: json.loads(json.dumps({"nodes": each.nodes, "pods": each.pods})) for name, each in found.items()}


def test_the_same_seed_gives_the_same_objects() -> None:
    assert cluster(Random("1/0")) == cluster(Random("1/0")) != cluster(Random("1/1"))


def test_every_reason_and_pods_without_one_occur() -> None:
    pods = [each for seed in range(20) for each in cluster(Random(seed))[0] if each["kind"] == "Pod"]
    found = {name for reader in ("2.10.0", "2.10.0 restarted") for each in pods for name in reasons(each, reader)}
    assert found == set(REASONS)
    # The newest version that runs on has fewer.
    assert sum(not any(reasons(each, READER)) for each in pods) > len(pods) // 4


def test_every_reason_is_a_line_of_the_docs() -> None:
    text = (ROOT / "docs" / "hami.md").read_text(encoding="utf-8")
    for name in REASONS:
        assert f"\n| {name} | " in text, name


def test_equal_numbers_are_equal(folder: Path) -> None:
    counts = compare(folder, READER, counted(folder))
    assert counts["pods"] == counts["pods that are counted alike"] > 50
    assert counts["cards"] == counts["cards that are counted alike"] > 50
    assert counts["cards that are held and no longer registered"] > 0


@pytest.mark.parametrize("kind", ["pods", "nodes"])
def test_a_difference_that_nothing_names_is_found(folder: Path, kind: str) -> None:
    theirs = counted(folder)
    path = folder / "cluster-000.json"
    pods = [each for each in json.loads(path.read_bytes())["items"] if each["kind"] == "Pod"]
    plain = {each["metadata"]["uid"] for each in pods if not any(reasons(each, READER))}
    given = theirs["cluster-000"][kind]
    where = next(name for name, held in given.items() if held and (kind == "nodes" or name in plain))
    next(iter(given[where].values()))[1] += 1
    with pytest.raises(Unexplained, match="GPU-" if kind == "pods" else "card GPU-|card DCU-"):
        compare(folder, READER, theirs)
    (folder / "theirs.json").write_text(json.dumps(theirs))
    assert main(["compare", str(folder), f"{READER}={folder / 'theirs.json'}"]) == 1
