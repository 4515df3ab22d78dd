"""A broken, doubled or half-written register never adds free capacity, and never hides the sound cards."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.node import Device
from accounting.register import (
    MAX_DEVICES,
    Register,
    decode_legacy_register,
    encode_legacy_register,
    read_register,
    unreadable,
)
from accounting.status import Code, ProblemCode
from tests.accounting.case_builders import Cluster, memory, node, pod
from tests.builders import make_node

ENTRY = {
    "id": "GPU-0",
    "index": 1,
    "count": 10,
    "devmem": 8192,
    "devcore": 100,
    "type": "NVIDIA A100-SXM4-80GB",
    "numa": 1,
    "mode": "hami-core",
    "health": True,
}
CARD = Device("GPU-0", 1, slots=10, memory=8192, cores=100, type="NVIDIA A100-SXM4-80GB", numa=1, mode="hami-core")


def entry(uuid: str = "GPU-0", **changes: object) -> dict[str, object]:
    return ENTRY | {"id": uuid} | changes


def messages(register: Register) -> list[str]:
    return [problem.message for problem in register.problems]


# -- what is read ------------------------------------------------------------------------------------------------------


def test_every_field_is_read() -> None:
    assert read_register("n", [entry()]) == Register((CARD,))


def test_absent_and_null_keys_mean_0_false_and_empty() -> None:
    bare = Device("GPU-0", 0, slots=0, memory=0, cores=0, healthy=False)
    assert read_register("n", [{"id": "GPU-0"}]).devices == (bare,)
    nulls: dict[str, object] = dict.fromkeys(ENTRY) | {"id": "GPU-0"}
    assert read_register("n", [nulls]).devices == (bare,)


def test_a_card_without_health_takes_nothing() -> None:
    sick = {key: value for key, value in ENTRY.items() if key != "health"}
    cluster = Cluster(node("n", *read_register("n", [sick]).devices))
    assert cluster.refusal(pod(memory("app", 1)), "n") is Code.DEVICE_UNHEALTHY


def test_unknown_keys_are_ignored() -> None:
    more = entry(migProfiles=[{"name": "1g.5gb"}], devicevendor="NVIDIA", custominfo={"a": 1}, later="x")
    assert read_register("n", [more]).devices == (CARD,)


def test_an_empty_list_has_no_cards_and_no_problem() -> None:
    assert read_register("n", []) == Register()


def test_cards_stand_in_the_order_of_numa_node_index_and_uuid() -> None:
    listed = [
        entry("GPU-d", numa=0, index=5),
        entry("GPU-e", numa=1, index=0),
        entry("GPU-b", numa=1, index=1),
        entry("GPU-c", numa=1, index=1),
    ]
    for seed in range(10):
        shuffled = random.Random(seed).sample(listed, len(listed))
        register = read_register("n", shuffled)
        assert [device.uuid for device in register.devices] == ["GPU-d", "GPU-e", "GPU-b", "GPU-c"]
        # The plugin writes its cards in random order; another order does not change the node.
        assert register == read_register("n", listed)


# -- what is wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, shown",
    [(None, "NoneType"), ("", "str"), ("[]", "str"), ({}, "dict"), (1, "int"), (True, "bool"), ((), "tuple")],
    ids=repr,
)
def test_a_register_that_is_no_list(value: object, shown: str) -> None:
    register = read_register("n", value)
    assert register.devices == ()
    (problem,) = register.problems
    assert (problem.code, problem.object) == (ProblemCode.UNREADABLE_REGISTER, "node n")
    assert problem.message == f"must be a list, is {shown}"


def test_an_annotation_that_cannot_be_read_at_all() -> None:
    register = unreadable("n", "is no JSON")
    assert (register.devices, messages(register)) == ((), ["is no JSON"])


NUMBER = "must be an integer from 0 to 2147483647"


@pytest.mark.parametrize(
    "bad, why",
    [
        (None, "must be an object, is NoneType"),
        ("GPU-0", "must be an object, is str"),
        ([], "must be an object, is list"),
        ({}, "id: None: must be a card's UUID"),
        (entry(id=""), "id: '': must be a card's UUID"),
        (entry(id=7), "id: 7: must be a card's UUID"),
        (entry(id="GPU,0"), "id: 'GPU,0': must not hold ',', ':', ';' or blanks, which no allocation could carry"),
        (entry(id="GPU:0"), "id: 'GPU:0': must not hold ',', ':', ';' or blanks, which no allocation could carry"),
        (entry(id="GPU;0"), "id: 'GPU;0': must not hold ',', ':', ';' or blanks, which no allocation could carry"),
        (entry(id=" GPU-0"), "id: ' GPU-0': must not hold ',', ':', ';' or blanks, which no allocation could carry"),
        (entry(count=-1), f"count of GPU-0: -1: {NUMBER}"),
        (entry(count=2**31), f"count of GPU-0: 2147483648: {NUMBER}"),
        (entry(count=1.0), f"count of GPU-0: 1.0: {NUMBER}"),
        (entry(count=True), f"count of GPU-0: True: {NUMBER}"),
        (entry(count="10"), f"count of GPU-0: '10': {NUMBER}"),
        (entry(index=-1), f"index of GPU-0: -1: {NUMBER}"),
        (entry(devmem=-1), f"devmem of GPU-0: -1: {NUMBER}"),
        (entry(devmem=[1]), f"devmem of GPU-0: [1]: {NUMBER}"),
        (entry(devcore=1e2), f"devcore of GPU-0: 100.0: {NUMBER}"),
        (entry(numa=-1), f"numa of GPU-0: -1: {NUMBER}"),
        (entry(health="true"), "health of GPU-0: 'true': must be true or false"),
        (entry(health=1), "health of GPU-0: 1: must be true or false"),
        (entry(type=5), "type of GPU-0: 5: must be text"),
        (entry(mode=["mig"]), "mode of GPU-0: ['mig']: must be text"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_bad_entry_is_left_out_and_named_and_the_others_stand(bad: object, why: str) -> None:
    register = read_register("n", [entry("GPU-1"), bad, entry("GPU-2")])
    assert [device.uuid for device in register.devices] == ["GPU-1", "GPU-2"]
    assert register.duplicated == frozenset()
    assert messages(register) == [f"entry 1: {why}"]


def test_a_uuid_that_stands_twice_is_one_card_that_takes_nothing() -> None:
    register = read_register("n", [entry("GPU-1"), entry("GPU-2"), entry("GPU-1", devmem=99_999), entry("GPU-1")])
    assert [(device.uuid, device.memory) for device in register.devices] == [("GPU-1", 8192), ("GPU-2", 8192)]
    assert register.duplicated == {"GPU-1"}
    (problem,) = register.problems
    assert (problem.code, problem.object) == (ProblemCode.DUPLICATE_DEVICE, "node n device GPU-1")
    cluster = Cluster(make_node("n", register.devices, duplicated=register.duplicated))
    asked = pod(memory("app", 1), annotations={"nvidia.com/use-gpuuuid": "GPU-1"})
    assert cluster.refusal(asked, "n") is Code.DEVICE_BLOCKED
    assert cluster.refusal(pod(memory("app", 1)), "n") is None


def test_more_entries_than_any_machine_has_are_refused_together() -> None:
    many = [entry(f"GPU-{number}") for number in range(MAX_DEVICES + 1)]
    assert len(read_register("n", many[:-1]).devices) == MAX_DEVICES
    register = read_register("n", many)
    assert register.devices == ()
    assert messages(register) == ["has 129 entries, more than 128"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = {key: JSON for key in ENTRY if key != "id"}
ENTRIES = st.one_of(
    JSON,
    st.fixed_dictionaries({"id": st.sampled_from(["GPU-0", "GPU-1", "GPU-2", ""])}, optional=FIELDS),
    st.just(ENTRY),
)


@given(st.lists(ENTRIES, max_size=6))
def test_whatever_is_registered_gives_unique_cards_with_whole_numbers(listed: list[Any]) -> None:
    register = read_register("n", listed)
    uuids = [device.uuid for device in register.devices]
    assert len(uuids) == len(set(uuids))
    assert register.duplicated <= set(uuids)
    for device in register.devices:
        assert all(
            type(number) is int and 0 <= number < 2**31
            for number in (device.index, device.slots, device.memory, device.cores, device.numa)
        )
        assert type(device.healthy) is bool
    # Every entry is a card, a duplicate of one, or a problem.
    unusable = sum(problem.code is ProblemCode.UNREADABLE_REGISTER for problem in register.problems)
    doubles = len(listed) - len(uuids) - unusable
    assert doubles >= len(register.duplicated)
    assert (doubles > 0) == bool(register.duplicated)


# -- the legacy text ---------------------------------------------------------------------------------------------------


def test_seven_fields_leave_index_and_mode_at_their_defaults() -> None:
    decoded = decode_legacy_register("GPU-0,10,7680,100,NVIDIA-Tesla P4,0,true:")
    (device,) = read_register("n", decoded).devices
    assert device == Device("GPU-0", 0, 10, 7680, 100, "NVIDIA-Tesla P4", 0, "hami-core", healthy=True)


def test_nine_fields_carry_index_and_mode() -> None:
    decoded = decode_legacy_register("GPU-0,10,7680,100,NVIDIA-Tesla P4,1,false,3,mps:")
    (device,) = read_register("n", decoded).devices
    assert device == Device("GPU-0", 3, 10, 7680, 100, "NVIDIA-Tesla P4", 1, "mps", healthy=False)


def test_empty_records_are_skipped() -> None:
    decoded = decode_legacy_register("::GPU-0,1,1,1,T,0,true::GPU-1,1,1,1,T,0,true:")
    assert [device.uuid for device in read_register("n", decoded).devices] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize(
    "text, why",
    [
        ("", "has no ':'"),
        ("GPU-0", "has no ':'"),
        (",:", "record ',' has 2 fields, not 7 or 9"),
        ("GPU-0,1,1,1,T,0:", "record 'GPU-0,1,1,1,T,0' has 6 fields, not 7 or 9"),
        ("GPU-0,1,1,1,T,0,true,0:", "record 'GPU-0,1,1,1,T,0,true,0' has 8 fields, not 7 or 9"),
        ("GPU-0,x,1,1,T,0,true:", "record 'GPU-0,x,1,1,T,0,true' has a bad number or boolean"),
        ("GPU-0,1,1.5,1,T,0,true:", "record 'GPU-0,1,1.5,1,T,0,true' has a bad number or boolean"),
        ("GPU-0,1,1,1,T,0,yes:", "record 'GPU-0,1,1,1,T,0,yes' has a bad number or boolean"),
        ("GPU-0,1,1,1,T,0,true,-1,m:", "record 'GPU-0,1,1,1,T,0,true,-1,m' has a negative index"),
        # One bad record makes the whole text unreadable, as it is one annotation.
        ("GPU-0,1,1,1,T,0,true:GPU-1:", "record 'GPU-1' has 1 fields, not 7 or 9"),
    ],
)
def test_a_bad_legacy_text(text: str, why: str) -> None:
    assert decode_legacy_register(text) == why


def test_a_number_of_thousands_of_digits_breaks_nothing() -> None:
    assert isinstance(decode_legacy_register(f"GPU-0,{'9' * 5000},1,1,T,0,true:"), str)
    huge = read_register("n", decode_legacy_register("GPU-0,9999999999,1,1,T,0,true:"))
    assert huge.devices == ()
    assert len(huge.problems) == 1


DEVICES = st.builds(
    Device,
    uuid=st.text("GPUabc0123456789-", min_size=1, max_size=20),
    index=st.integers(0, 2**31 - 1),
    slots=st.integers(0, 2**31 - 1),
    memory=st.integers(0, 2**31 - 1),
    cores=st.integers(0, 2**31 - 1),
    type=st.text("NVIDIA A100-80GB", max_size=20),
    numa=st.integers(0, 7),
    mode=st.sampled_from(["hami-core", "mig", "mps", ""]),
    healthy=st.booleans(),
)


@given(st.lists(DEVICES, min_size=1, max_size=5, unique_by=lambda device: device.uuid))
def test_what_was_written_as_legacy_text_comes_back(devices: list[Device]) -> None:
    register = read_register("n", decode_legacy_register(encode_legacy_register(devices)))
    assert sorted(register.devices, key=lambda device: device.uuid) == sorted(devices, key=lambda device: device.uuid)
    assert not register.problems
