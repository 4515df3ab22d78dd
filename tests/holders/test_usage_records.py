"""Usage records: amount times time, opened and closed by one pass."""

from hypothesis import given
from hypothesis import strategies as st

from accounting.holders import Owner, Phase, Subject, UsageRecords, split_by_phase

POD = Owner("pod", "ns", "a", "uid-a")
CARD = Subject("card", "A100"), Phase.STEADY
INIT = Subject("card", "A100"), Phase.INIT


def test_a_record_adds_up_amount_times_time() -> None:
    records = UsageRecords()
    assert records.put(POD, {CARD: (1, 4000, 10)}, 0)
    assert records.put(POD, {CARD: (1, 2000, 10)}, 5)
    assert records.close(POD.uid, 10)
    (record,) = records
    assert record.used == (10, 30_000, 100)
    assert not record.is_open
    assert record.until(99) == record.used


def test_the_same_amounts_again_change_nothing() -> None:
    records = UsageRecords()
    records.put(POD, {CARD: (1, 4000, 10)}, 0)
    assert not records.put(POD, {CARD: (1, 4000, 10)}, 7)
    (record,) = records
    assert (record.last_ns, record.until(7)) == (0, (7, 28_000, 70))


def test_f_02_a_pod_is_split_into_its_inits_and_the_rest() -> None:
    peak, steady = (2, 22528, 10), (2, 12288, 10)
    assert split_by_phase(peak, steady, past_inits=False) == {Phase.STEADY: steady, Phase.INIT: (0, 10240, 0)}
    assert split_by_phase(peak, steady, past_inits=True) == {Phase.STEADY: steady}
    assert split_by_phase(steady, steady, past_inits=False) == {Phase.STEADY: steady}


def test_d_01_owners_that_a_list_does_not_name_are_closed() -> None:
    records = UsageRecords()
    records.put(POD, {CARD: (1, 1, 1), INIT: (0, 5, 0)}, 0)
    records.close_others([], 4)
    assert [record.is_open for record in records] == [False, False]
    assert not records.close(POD.uid, 9)


def test_records_of_an_earlier_process_go_on() -> None:
    first, second = UsageRecords(), UsageRecords()
    first.put(POD, {CARD: (1, 1, 1)}, 0)
    second.restore(first)
    second.put(POD, {CARD: (2, 2, 2)}, 3)
    (record,) = second
    assert (record.used, record.amounts) == ((3, 3, 3), (2, 2, 2))


def test_old_closed_records_are_dropped_and_open_ones_stay() -> None:
    records = UsageRecords()
    records.put(POD, {CARD: (1, 1, 1)}, 0)
    records.put(POD._replace(uid="uid-b"), {CARD: (1, 1, 1)}, 0)
    records.close(POD.uid, 1)
    assert records.drop_closed_before(2) == 1
    assert [record.line.owner.uid for record in records] == ["uid-b"]


steps = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 9)), max_size=12)


@given(steps)
def test_any_sequence_adds_up_to_the_sum_over_its_intervals(given_steps: list[tuple[int, int, int]]) -> None:
    records, now, expected, open_amounts = UsageRecords(), 0, [0, 0], (0, 0)
    for wait, slots, memory in given_steps:
        now += wait
        expected = [total + amount * wait for total, amount in zip(expected, open_amounts, strict=True)]
        open_amounts = slots, memory
        records.put(POD, {CARD: open_amounts}, now)
    assert [sum(each) for each in zip(*(record.until(now) for record in records), strict=True)] in (expected, [])
    assert sum(expected) == sum(sum(record.until(now)) for record in records)
