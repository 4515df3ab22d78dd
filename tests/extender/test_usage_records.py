"""Usage records over HTTP: share times time, by phase, across restarts, independent of what users can write.

They exist because bills are made from them. They must not add up as the program does: every expected number is the
amount times the seconds of a story. Invariant: the test sets the time.
"""

import csv
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import Cluster
from extender.commands.usage import UsageKeeper
from extender.convert import InputError
from extender.convert.pod import convert_pod
from extender.convert.usage_file import VERSION, read_usage, usage_lines
from extender.convert.virtual_machine import convert_vmi
from extender.wire import core_v1, kubevirt_v1
from tests.extender.objects import MODEL, STARTING, STEADY, Json, bound, card, node, phased
from tests.extender.raw_cluster import make_raw_cluster
from tests.extender.serving import Client, serving
from tests.extender.vmis import raw_node, raw_pod, vmi

NS = 10**9
BEGAN = 1_700_000_000


class Clock:
    """Seconds since the story began."""

    def __init__(self) -> None:
        self.now = 0

    def ns(self) -> int:
        return (BEGAN + self.now) * NS


class Story:
    """A cluster that keeps records, and its clock."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.client = client
        self.clock = clock

    def wait(self, seconds: int) -> None:
        self.clock.now += seconds

    def put_vmi(self, obj: Json) -> None:
        self.client.cluster.put_vmi(
            convert_vmi(msgspec.convert(obj, kubevirt_v1.VirtualMachineInstance), self.client.cluster.settings)
        )

    async def records(self, query: str = "") -> list[Json]:
        return list(await self.client.get(f"/api/v1/usage/records{query}"))

    async def units(self) -> dict[str, int]:
        """Return unit seconds by owner."""
        return {
            f"{each['kind']} {each['name']}": each["unit_seconds"] for each in await self.records() if each["raw_key"]
        }


@asynccontextmanager
async def telling(*objects: Json) -> AsyncIterator[Story]:
    clock, cluster = Clock(), make_raw_cluster(*objects)
    cluster.keep_usage((), clock.ns)
    async with serving(cluster=cluster) as client:
        yield Story(client, clock)


async def test_a_pod_is_split_into_its_inits_and_the_rest() -> None:
    async with telling(node("n1")) as story:
        await story.client.create(phased(STARTING))
        story.wait(10)
        await story.client.create(phased(STEADY), 200)
        story.wait(100)
        await story.client.delete("p")
        story.wait(1000)
        init, steady = await story.records()
    assert (init["phase"], init["open"], init["memory_mib_seconds"], init["slot_seconds"]) == ("init", False, 100, 0)
    assert (steady["phase"], steady["open"], steady["memory_mib_seconds"]) == ("steady", False, 12 * 110)
    assert (steady["slot_seconds"], steady["model"], steady["raw_key"]) == (2 * 110, MODEL, "")
    assert (steady["first"], steady["last"]) == ("2023-11-14T22:13:20Z", "2023-11-14T22:15:10Z")


async def test_what_is_held_now_counts_up_to_now() -> None:
    async with telling(node("n1"), bound("b", "n1", "GPU-n1-0", 300, cores=20)) as story:
        story.wait(7)
        (record,) = await story.records("?namespace=default")
        assert (record["open"], record["memory_mib_seconds"], record["core_percent_seconds"]) == (True, 2100, 140)
        assert await story.records("?namespace=other") == []


async def test_f_02_what_a_pod_says_of_its_own_use_is_not_read() -> None:
    overriding = raw_pod("p", 2, annotations={"workload.cozystack.io/resources": '{"gpu": 0}'})
    async with telling(raw_node()) as story:
        await story.client.place(overriding, "n1")
        story.wait(5)
        assert await story.units() == {"pod p": 10}


async def test_a_device_is_its_vms_and_a_launcher_has_what_it_requests_beyond() -> None:
    async with telling(raw_node(), vmi("a", ["uid-l"], units=2)) as story:
        await story.client.place(raw_pod("l", 3), "n1")
        await story.client.place(raw_pod("spoofer", 1), "n1")
        story.wait(10)
        assert await story.units() == {"vmi a": 20, "pod l": 10, "pod spoofer": 10}


async def test_c_05_two_launchers_share_one_credit() -> None:
    async with telling(raw_node(), vmi("a", ["uid-l", "uid-m"], units=2)) as story:
        await story.client.place(raw_pod("l", 2), "n1")
        await story.client.place(raw_pod("m", 2), "n1")
        story.wait(10)
        assert await story.units() == {"vmi a": 20, "pod m": 20}
        await story.client.delete("l")
        story.wait(10)
        assert await story.units() == {"vmi a": 40, "pod m": 20}


async def test_c_11_a_launcher_has_its_devices_until_it_is_listed() -> None:
    async with telling(raw_node(), vmi("a", units=1)) as story:
        await story.client.place(raw_pod("l", 1), "n1")
        story.wait(3)
        story.put_vmi(vmi("a", ["uid-l"], units=1))
        story.wait(10)
        assert await story.units() == {"vmi a": 13, "pod l": 3}


async def test_d_01_what_ends_is_closed() -> None:
    async with telling(raw_node(), node("n2"), vmi("a", units=1), raw_pod("p", 1, node="n1")) as story:
        await story.client.create(bound("b", "n2", "GPU-n2-0", 10))
        story.wait(10)
        story.client.cluster.remove_vmi(next(iter(story.client.cluster.raw.vmis())).key)
        await story.client.create(raw_pod("p", 1, node="n1", status={"phase": "Succeeded"}), 200)
        await story.client.create(bound("b", "n2", "GPU-n2-0", 10) | {"status": {"phase": "Failed"}}, 200)
        story.wait(90)
        found = await story.records()
        assert {each["name"]: (each["open"], each["unit_seconds"], each["slot_seconds"]) for each in found} == {
            "a": (False, 10, 0),
            "p": (False, 10, 0),
            "b": (False, 0, 10),
        }


async def test_a_vm_that_waits_for_a_node_has_nothing_yet() -> None:
    async with telling(raw_node(), vmi("a", units=1, node=None, phase="Pending")) as story:
        story.wait(10)
        assert await story.records() == []


async def test_csv_has_the_same_numbers_and_no_formula() -> None:
    evil = node("n1", [card("GPU-n1-0", type="=cmd()")])
    async with telling(evil, bound("b", "n1", "GPU-n1-0", 300)) as story:
        story.wait(7)
        answer = await story.client.send("GET", "/api/v1/usage/records?format=csv")
        (row,) = csv.DictReader(io.StringIO(answer.body.decode(), newline=""))
        (record,) = await story.records()
        assert (await story.client.send("GET", "/api/v1/usage/records?format=xml")).status == 400
    assert row.pop("model") == "'=cmd()"
    assert row == {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in record.items()
        if key != "model"
    }


async def test_without_records_the_answer_says_how_to_have_some() -> None:
    async with serving(node("n1")) as client:
        answer = await client.send("GET", "/api/v1/usage/records")
        assert answer.status == 404
        assert "--usage-file" in answer.json()["error"]


# -- over a restart ----------------------------------------------------------------------------------------------------


def keeper_of(cluster: Cluster, file: Path, clock: Clock, *, synced: bool = True) -> UsageKeeper:
    return UsageKeeper(cluster, str(file), 90, lambda: synced, clock.ns)


def seconds(keeper: UsageKeeper, clock: Clock) -> dict[str, tuple[int, bool]]:
    """Return slot seconds up to now by owner, and whether the record is open."""
    return {each.line.owner.name: (each.until(clock.ns())[0] // NS, each.is_open) for each in keeper.ledger.records}


async def test_records_go_on_after_a_restart_and_what_is_gone_is_closed(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "usage"
    stays, goes = (bound(name, "n1", "GPU-n1-0", 100) for name in ("stays", "goes"))
    first = keeper_of(make_raw_cluster(node("n1"), stays, goes), file, clock)
    clock.now = 10
    await first.run_pass()
    await first.save()
    clock.now = 100
    second = keeper_of(make_raw_cluster(node("n1"), stays), file, clock)
    await second.run_pass()
    clock.now = 110
    assert seconds(second, clock) == {"stays": (110, True), "goes": (100, False)}


async def test_before_everything_was_listed_nothing_is_closed_nor_written(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "usage"
    first = keeper_of(make_raw_cluster(node("n1"), bound("b", "n1", "GPU-n1-0")), file, clock)
    await first.run_pass()
    await first.save()
    before = file.read_bytes()
    second = keeper_of(make_raw_cluster(node("n1")), file, clock, synced=False)
    await second.run_pass()
    await second.save()
    assert file.read_bytes() == before
    assert [each.is_open for each in second.ledger.records] == [True]


async def test_a_pod_that_runs_already_is_counted_from_its_start() -> None:
    clock = Clock()
    running = bound("b", "n1", "GPU-n1-0")
    running["status"] |= {"startTime": "2023-11-14T22:12:20Z"}
    cluster = make_raw_cluster(node("n1"), running)
    ledger = cluster.keep_usage((), clock.ns)
    ledger.catch_up()
    (record,) = ledger.records
    assert record.until(clock.ns())[0] == 60 * NS


async def test_old_closed_records_are_left_out_of_the_file(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "usage"
    cluster = make_raw_cluster(node("n1"), bound("b", "n1", "GPU-n1-0"))
    keeper = keeper_of(cluster, file, clock)
    await keeper.run_pass()
    cluster.delete_pod("uid-b")
    clock.now = 89 * 24 * 3600
    await keeper.run_pass()
    await keeper.save()
    assert len(read_usage(file.read_bytes())) == 1
    clock.now *= 2
    await keeper.save()
    assert read_usage(file.read_bytes()) == []


def a_file() -> bytes:
    clock, cluster = Clock(), make_raw_cluster(node("n1"), bound("b", "n1", "GPU-n1-0"), bound("c", "n1", "GPU-n1-0"))
    ledger = cluster.keep_usage((), clock.ns)
    ledger.catch_up()
    return b"".join(usage_lines(ledger.records, clock.ns()))


DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("path", sorted(DATA.glob("usage-records-*.jsonl")), ids=lambda path: path.name)
def test_what_an_earlier_version_wrote_is_read(path: Path, tmp_path: Path) -> None:
    """A file of each version of the format that there was stays among the tests."""
    file = tmp_path / "usage"
    file.write_bytes(path.read_bytes())
    keeper = UsageKeeper(make_raw_cluster(), str(file), 90)
    found = {(each.line.owner.name, each.line.phase.value): each.used[:2] for each in keeper.ledger.records}
    assert found == {
        ("b", "steady"): (150 * NS, 15_000 * NS),
        ("p", "init"): (0, 900 * NS),
        ("p", "steady"): (180 * NS, 1_080 * NS),
        ("m", "steady"): (0,),
    }


def test_the_tests_have_a_file_of_every_version() -> None:
    versions = {path.stem.rpartition("-")[2] for path in DATA.glob("usage-records-*.jsonl")}
    assert versions == {str(version) for version in range(1, VERSION + 1)}


@pytest.mark.parametrize(
    "broken, why",
    [
        pytest.param(lambda text: b"", "is empty", id="empty"),
        pytest.param(lambda text: text[: len(text) // 2], "line ", id="cut"),
        pytest.param(lambda text: text.replace(b'usage":1', b'usage":2'), "version 2", id="of-another-version"),
        pytest.param(
            lambda text: b"".join(text.splitlines(keepends=True)[:2] + text.splitlines(keepends=True)[3:]),
            "2 records were written, 1 are there",
            id="a-line-missing",
        ),
        pytest.param(lambda text: text.replace(b'"steady"', b'"late"'), "line 2", id="no-such-phase"),
        pytest.param(lambda text: b"\xff" + text, "line 1", id="no-text"),
    ],
)
def test_a_file_that_is_not_whole_keeps_the_process_from_starting(broken, why: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    file = tmp_path / "usage"
    file.write_bytes(broken(a_file()))
    with pytest.raises(InputError, match=why):
        UsageKeeper(make_raw_cluster(), str(file), 90)


# -- against what is used ----------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["pod", "end", "vmi", "gone"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["n1", "n2"]),
        st.integers(0, 3),
        st.frozensets(st.sampled_from(["uid-a", "uid-b"])),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_what_is_open_is_what_is_used(story: list[tuple[str, str, str, int, frozenset[str]]]) -> None:
    clock, cluster = Clock(), make_raw_cluster(raw_node("n1"), raw_node("n2"))
    ledger = cluster.keep_usage((), clock.ns)
    for what, name, where, units, listed in story:
        machine = convert_vmi(
            msgspec.convert(vmi(name, sorted(listed), units=units, node=where), kubevirt_v1.VirtualMachineInstance),
            cluster.settings,
        )
        if what == "pod" and units and cluster.pod(f"uid-{name}") is None:
            made = raw_pod(name, units, node=where)
            cluster.put_pod(convert_pod(msgspec.convert(made, core_v1.Pod), cluster.settings))
        elif what == "end":
            cluster.delete_pod(f"uid-{name}")
        elif what == "vmi":
            cluster.put_vmi(machine)
        elif what == "gone":
            cluster.remove_vmi(machine.key)
        ledger.catch_up()
        assert sum(sum(each.amounts) for each in ledger.records) == sum(cluster.raw.units.on_nodes().values())
