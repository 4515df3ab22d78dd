"""The journal of a live cluster with kills replays without difference, and every change to it is found.

It exists because a journal must also replay after bad times. It must not know how entries are applied. Invariant: the
journal is that of real processes killed at any point, amid bursts, conflicts and lost answers.
"""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accounting.policy import NodePolicy, Policies, parse_card_policy
from accounting.vendor import NVIDIA
from benchmarks.kill_trial import Settings, run
from extender import config
from extender.cli import main
from extender.journal.journal import FORMAT, FileJournal, Start, read_journal
from extender.journal.recording import Recorder
from extender.live.replaying import Replay
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.extender import processes
from tests.extender.objects import node, pod
from tests.extender.serving import asked
from tests.live.process_harness import LONG, serving

pytestmark = pytest.mark.real_time

Json = dict[str, Any]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the lines of a journal that several processes have written."""
    directory = tmp_path_factory.mktemp("journal")
    path = directory / "journal"
    outcome = run(Settings(seed="replay", points=2, pods=100, nodes=8, journal=path), directory)
    assert outcome.violation is None, f"{outcome.where}: {outcome.violation}"
    return path.read_text().splitlines(keepends=True)


@pytest.fixture
async def refused(tmp_path: Path) -> list[str]:
    """Return the journal of a process whose second bind finds no room, though filter passed both pods."""
    path, first, second = tmp_path / "refused", pod("first", memory=700), pod("second", memory=700)
    async with ApiServer() as api:
        api.load([node("n1"), first, second])
        kubeconfig = write_kubeconfig(tmp_path / "kc", api.url)
        async with serving(kubeconfig, *LONG, "--journal", path) as extender:
            await extender.answers("/readyz", 200)
            for made in (first, second):
                assert (await extender.post("/filter", asked(made, "n1")))["NodeNames"] == ["n1"]
            answers = [await extender.post("/bind", _binding(made)) for made in (first, second)]
            assert [answer["Error"][:18] for answer in answers] == ["", "InsufficientMemory"]
            assert await extender.stop() == 0
    return path.read_text().splitlines(keepends=True)


@pytest.fixture
def replay(tmp_path: Path) -> Callable[[list[str]], tuple[int, Json]]:
    def replay(lines: list[str]) -> tuple[int, Json]:
        path = tmp_path / "journal"
        path.write_text("".join(lines))
        result = processes.run("replay", "-o", "json", path)
        assert result.status in (0, 1), result.err
        return result.status, result.json()

    return replay


def test_a_live_run_with_kills_replays_without_difference(
    recorded: list[str], replay: Callable[[list[str]], tuple[int, Json]]
) -> None:
    ops = Counter(entry["op"] for line in recorded if (entry := _entry(line)))
    assert ops["start"] == 3
    assert min(ops[op] for op in ("change", "replaced", "verb", "assume", "finish", "claim", "unclaim")) > 0
    status, summary = replay(recorded)
    assert (status, summary["difference"]) == (0, None)
    assert (summary["processes"], summary["bookings"]) == (3, ops["assume"])
    assert summary["refusals"] == ops["refuse"]
    assert summary["answers"] > summary["bookings"]


def test_one_changed_byte_of_an_answer_is_reported_with_its_line(
    recorded: list[str], replay: Callable[[list[str]], tuple[int, Json]]
) -> None:
    number, entry = _last(recorded, lambda entry: entry.get("verb") == "filter" and "n0" in entry["answer"])
    answer = entry["answer"].replace("n0", "m0", 1)
    changed = [*recorded[:number], _line(entry | {"answer": answer}), *recorded[number + 1 :]]
    status, summary = replay(changed)
    assert status == 1
    assert summary["difference"]["line"] == number + 1
    assert summary["difference"]["what"] == "answer of filter"
    assert (summary["difference"]["recorded"], summary["difference"]["replayed"]) == (answer, entry["answer"])


def test_one_changed_byte_of_an_allocation_is_reported_with_its_line(
    recorded: list[str], replay: Callable[[list[str]], tuple[int, Json]]
) -> None:
    number, entry = _last(recorded, lambda entry: entry["op"] == "assume")
    first, comma, rest = entry["allocation"].partition(",NVIDIA,")
    allocation = f"{first[:-1]}9{comma}{rest}"
    status, summary = replay([*recorded[:number], _line(entry | {"allocation": allocation}), *recorded[number + 1 :]])
    assert (status, summary["difference"]["line"]) == (1, number + 1)
    assert summary["difference"]["replayed"] == entry["allocation"]


@pytest.mark.parametrize("kind", ["success", "another node"])
def test_the_answer_of_a_bind_is_compared_with_what_was_booked(
    recorded: list[str], replay: Callable[[list[str]], tuple[int, Json]], kind: str
) -> None:
    number, entry = _last(recorded, lambda entry: entry.get("verb") == "bind" and entry["answer"] == '{"Error":""}')
    body = json.loads(entry["body"])
    if kind == "success":
        entry |= {"answer": json.dumps({"Error": "InsufficientMemory: no card has room"}, separators=(",", ":"))}
        replayed = ""  # or why an earlier bind there found none
    else:
        node = body["Node"]
        entry |= {"body": json.dumps(body | {"Node": "n99"})}
        replayed = f'{{"Error":"AlreadyBound: pod kill/{body["PodName"]} is on node {node}"}}'
    status, summary = replay([*recorded[:number], _line(entry), *recorded[number + 1 :]])
    assert (status, summary["difference"]["line"]) == (1, number + 1)
    assert summary["difference"]["what"] == "answer of bind"
    assert summary["difference"]["replayed"] in {replayed or summary["difference"]["replayed"]} - {entry["answer"]}


def test_the_answer_of_a_refused_bind_is_compared(
    refused: list[str], replay: Callable[[list[str]], tuple[int, Json]]
) -> None:
    status, summary = replay(refused)
    assert (status, summary["difference"], summary["refusals"]) == (0, None, 1)
    number, entry = _last(refused, lambda entry: entry.get("verb") == "bind")
    other = entry | {"answer": entry["answer"].replace("free", "gone")}
    status, summary = replay([*refused[:number], _line(other), *refused[number + 1 :]])
    assert (status, summary["difference"]["line"]) == (1, number + 1)
    assert (summary["difference"]["what"], summary["difference"]["replayed"]) == ("answer of bind", entry["answer"])


def test_why_a_bind_found_no_cards_is_compared(
    refused: list[str], replay: Callable[[list[str]], tuple[int, Json]]
) -> None:
    number, entry = _last(refused, lambda entry: entry["op"] == "refuse")
    status, summary = replay([*refused[:number], _line(entry | {"why": "x"}), *refused[number + 1 :]])
    assert (status, summary["difference"]["line"]) == (1, number + 1)
    assert summary["difference"]["replayed"] == entry["why"]


def test_a_missing_entry_shows(recorded: list[str], replay: Callable[[list[str]], tuple[int, Json]]) -> None:
    started, _ = _last(recorded, lambda entry: entry["op"] == "start")
    told = [
        number
        for number, line in enumerate(recorded)
        if number > started and (entry := _entry(line))["op"] == "change" and _names(entry, "Node", "n00")
    ]
    # A process that has waited lists again, so the object is shown more than once.
    status, summary = replay([line for number, line in enumerate(recorded) if number not in told])
    assert status == 1
    assert summary["difference"]["line"] > told[0]


def _names(entry: Json, kind: str, name: str) -> bool:
    return entry["kind"] == kind and json.loads(entry["object"])["metadata"]["name"] == name


def test_text_shows_where_answers_differ(recorded: list[str], tmp_path: Path) -> None:
    number, entry = _last(recorded, lambda entry: entry.get("verb") == "filter" and "n0" in entry["answer"])
    path = tmp_path / "journal"
    path.write_text("".join([*recorded[:number], _line(entry | {"answer": "x" + entry["answer"]})]))
    result = processes.run("replay", path)
    assert result.status == 1
    assert f"line {number + 1}: answer of filter differs\n  then: x" in result.out.decode()


@pytest.mark.parametrize("kept", [1, 10, -1])
def test_a_cut_last_line_is_passed_over(
    recorded: list[str], replay: Callable[[list[str]], tuple[int, Json]], kept: int
) -> None:
    status, summary = replay([*recorded[:40], recorded[40][:kept]])
    assert (status, summary["entries"]) == (0, 40)


def test_a_line_that_a_kill_has_cut_is_followed_by_the_next_start(
    recorded: list[str], tmp_path: Path, replay: Callable[[list[str]], tuple[int, Json]]
) -> None:
    path = tmp_path / "cut"
    path.write_text("".join([*recorded[:40], recorded[40][:10]]))
    journal = FileJournal(str(path))
    Recorder(journal, config.Settings())
    journal.close()
    status, summary = replay(path.read_text().splitlines(keepends=True))
    assert (status, summary["entries"], summary["processes"]) == (0, 41, 2)


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "it has no entry"),
        ("[]\n", "line 1"),
        ("nonsense\n", "line 1"),
        ('{"op":"finish","uid":"a"}\n{"op":"dance"}\n', "line 2"),
        ('{"op":"finish","uid":"a"}\n{"op":"finish"}\n', "line 2"),
        ('{"op":"change","kind":"Pod","change":"eaten","object":"{}"}\n', "line 1"),
        ('x\n{"op":"finish","uid":"a"}\n', "line 1"),
    ],
)
def test_what_is_no_journal_is_refused_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "journal"
    path.write_text(text)
    assert why in processes.refusal("replay", path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "No such file" in processes.refusal("replay", tmp_path / "nothing")
    assert "directory" in processes.refusal("replay", tmp_path)


def test_settings_come_from_the_journal(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    policies = Policies(NodePolicy.SPREAD, parse_card_policy("numa,binpack"))
    settings = config.Settings(replace(NVIDIA, memory_factor=1024), policies)
    journal = FileJournal(path)
    Recorder(journal, settings)
    journal.close()
    (_, entry), *_ = read_journal(path)
    assert isinstance(entry, Start)
    assert entry.settings == settings


# -- other versions ----------------------------------------------------------------------------------------------------

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("path", sorted(DATA.glob("journal-*.jsonl.gz")), ids=lambda path: path.name)
def test_what_an_earlier_version_wrote_is_read(path: Path, tmp_path: Path) -> None:
    """It is read whatever it answered.

    A later version may answer otherwise; replay then says where, and reads up to there.
    """
    stored = tmp_path / "journal"
    stored.write_bytes(gzip.decompress(path.read_bytes()))
    entries = [entry for _, entry in read_journal(str(stored))]
    assert len(entries) == len(stored.read_text().splitlines())
    begun = [entry for entry in entries if isinstance(entry, Start)]
    assert [(each.version, each.format) for each in begun] == [("0.1.0", 1)] * 2
    assert Replay(config.Settings()).run(read_journal(str(stored))).processes > 0


def test_a_journal_says_its_format_and_a_later_one_is_refused(
    recorded: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start = json.loads(recorded[0])
    assert (start["op"], start["format"]) == ("start", FORMAT)
    later = tmp_path / "later"
    later.write_text(json.dumps(start | {"format": FORMAT + 1, "version": "9.0.0"}) + "\n")
    assert main(["replay", str(later)]) == 2
    error = capsys.readouterr().err
    assert error == f"error: FILE: {later}: not a journal: line 1: format 2 of 9.0.0; this version reads 1\n"


def test_a_body_that_is_no_text_survives(tmp_path: Path) -> None:
    path = str(tmp_path / "journal")
    journal = FileJournal(path)
    Recorder(journal, config.Settings()).on_answer("filter", b'{"\xff"', b"{}")
    journal.close()
    _, (_, entry) = read_journal(path)
    assert getattr(entry, "base64", None) == b'{"\xff"'


def test_a_journal_that_cannot_be_written_ends_and_nothing_else() -> None:
    journal = FileJournal("/dev/full")
    for _ in range(2):
        journal.write({"op": "finish", "uid": "a"})
    journal.close()


def _binding(made: Json) -> Json:
    meta = made["metadata"]
    return {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}


def _entry(line: str) -> Json:
    try:
        entry: Json = json.loads(line)
    except ValueError:
        return {}
    return entry


def _line(entry: Json) -> str:
    return json.dumps(entry, separators=(",", ":")) + "\n"


def _last(lines: list[str], wanted: Callable[[Json], bool]) -> tuple[int, Json]:
    """Return the last matching line, counted from 0."""
    return next(
        (number, entry) for number in reversed(range(len(lines))) if (entry := _entry(lines[number])) and wanted(entry)
    )
