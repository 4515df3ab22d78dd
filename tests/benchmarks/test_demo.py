"""The demonstration runs through against a real extender, leaves nothing behind, and notices a wrong number.

The test must not know the stories' numbers; the demonstration itself compares them. Invariant: one extender serves all.
"""

import re
from collections.abc import Iterator

import pytest

from benchmarks import demo, demo_stories
from benchmarks.demo_client import Client
from benchmarks.demo_pods import DemoPod
from benchmarks.demo_view import WIDTH
from benchmarks.http_load import Address, Connection
from benchmarks.processes import extender


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with extender([]) as running:
        yield running.address


def pods_and_cards(address: Address) -> tuple[object, object]:
    with Connection(address) as connection:
        return tuple(connection.call("GET", f"/api/v1/{path}").json() for path in ("pods", "nodes"))


def test_it_can_run_twice_shows_every_state_and_reason_and_leaves_nothing(
    server: Address, capsys: pytest.CaptureFixture[str]
) -> None:
    before, text = pods_and_cards(server), ""
    for _ in range(2):
        assert demo.main(["--url", str(server)]) == 0
        text = capsys.readouterr().out
        assert "Every number was as expected." in text
        assert max(map(len, text.splitlines())) <= WIDTH
        assert "…" not in text
        assert pods_and_cards(server) == before
    for story in demo_stories.STORIES:
        assert story.title in text
    for word in ("peak", "steady", "released", "gone", "InsufficientMemory", "UUIDMismatch", "NoDevices"):
        assert word in text
    assert re.search(r"wants 1 card; \d+ MiB wanted", text)
    assert re.search(r"\d+ MiB free", text)


def test_a_wrong_number_is_found(
    server: Address, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    story = demo_stories.STORIES[1]
    wrong = story._replace(peak=(story.peak[0]._replace(gib=21),))
    monkeypatch.setattr(demo, "STORIES", (wrong,))
    before = pods_and_cards(server)
    assert demo.main(["--url", str(server)]) == 1
    assert "must hold 21 GiB in 2 slots" in capsys.readouterr().out
    assert pods_and_cards(server) == before


def test_without_a_server_it_starts_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_DEFAULT", Address("127.0.0.1", 1))
    monkeypatch.setattr(demo, "STORIES", demo_stories.STORIES[:1])
    assert demo.main([]) == 0
    assert "Every number was as expected." in capsys.readouterr().out


def test_a_server_at_the_default_address_is_used(
    server: Address, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_DEFAULT", server)
    monkeypatch.setattr(demo, "STORIES", ())
    assert demo.main([]) == 0
    assert capsys.readouterr().out.startswith(str(server))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://x", "nonsense"])
def test_nobody_there_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = demo.main(["--url", url])
    except SystemExit as ended:
        status = int(str(ended.code))
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_leftovers_of_an_earlier_run_are_taken_away(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    before = pods_and_cards(server)
    client = Client(server)
    pod = demo_stories.STORIES[0]
    client.put(DemoPod(pod.name, pod.asks).object)
    client.close()
    monkeypatch.setattr(demo, "STORIES", (pod,))
    assert demo.main(["--url", str(server)]) == 0
    assert pods_and_cards(server) == before
