"""The table of vendors: what each one's containers ask for, and what its registers mean.

It exists because a vendor is a row of a table, and a wrong row is as wrong as wrong code. It must not test fitting.
Invariant: every vendor of the table is asked, and every unsupported one has its reason.
"""

from dataclasses import fields
from itertools import combinations

import pytest

from accounting.container_resources import ContainerResources, container_request, container_requests
from accounting.pod import DeviceRequest
from accounting.register import ReservedMemory, decode_legacy_register, merge_registers, read_register, with_reserved
from accounting.selection import type_tokens
from accounting.status import ProblemCode
from accounting.vendor import NVIDIA, RegisterFormat, Vendor
from accounting.vendors import HYGON, UNSUPPORTED, VENDORS, XPU

EVERY = [pytest.param(vendor, id=name) for name, vendor in VENDORS.items()]


def ask(vendor: Vendor, **amounts: object) -> DeviceRequest | str | None:
    """Return what a container with these limits asks for, or why that cannot be used."""
    names = {"count": vendor.count_resource, "memory": vendor.memory_resource, "cores": vendor.cores_resource}
    limits = {names.get(name, name): amount for name, amount in amounts.items()}
    request, invalid = container_request(ContainerResources(limits), vendor, "c")
    return invalid[0].why if invalid else request


def test_no_two_vendors_share_a_name() -> None:
    names = ("register_annotation", "devices_allocated_annotation", "devices_to_allocate_annotation", "key")
    for one, other in combinations(VENDORS.values(), 2):
        assert not set(one.resources) & set(other.resources)
        for name in names:
            assert getattr(one, name) != getattr(other, name)
    assert not VENDORS.keys() & UNSUPPORTED.keys()
    assert all(UNSUPPORTED.values())


@pytest.mark.parametrize("vendor", EVERY)
def test_a_count_alone_asks_for_whole_cards(vendor: Vendor) -> None:
    asked = ask(vendor, count=1)
    assert isinstance(asked, DeviceRequest)
    assert (asked.count, asked.vendor) == (1, vendor.key)
    if vendor.slots_only:
        assert (asked.memory, asked.memory_percentage, asked.cores) == (0, 0, 0)
    elif vendor is XPU:
        assert (asked.memory, asked.cores, asked.one_size) == (98_304, 100, True)
    else:
        assert (asked.memory_percentage, asked.whole) == (100, True)
    assert ask(vendor, count=0) is None
    assert ask(vendor) is None


@pytest.mark.parametrize("vendor", EVERY)
def test_every_vendor_has_the_names_that_its_nodes_and_pods_need(vendor: Vendor) -> None:
    assert vendor.count_resource == vendor.resources[0]
    assert vendor.register_annotation.startswith("hami.io/")
    assert vendor.devices_allocated_annotation.startswith("hami.io/")
    assert bool(vendor.handshake_annotation) == (vendor is not NVIDIA)
    assert list(vendor.templates) == sorted(vendor.templates, key=lambda each: each.memory)
    assert all(getattr(vendor, field.name) is not None for field in fields(Vendor))


def test_hygon_asks_all_compute_by_default_and_has_a_factor_of_its_own() -> None:
    assert ask(HYGON, count=2, memory=4096) == DeviceRequest(2, 4096, 0, 100, vendor="DCU")
    assert ask(HYGON, count=1, memory=4096, cores=20) == DeviceRequest(1, 4096, 0, 20, vendor="DCU")


@pytest.mark.parametrize(
    "asked,memory,cores",
    [(1, 24_576, 25), (24_576, 24_576, 25), (24_577, 49_152, 50), (49_153, 98_304, 100), (500_000, 98_304, 100)],
)
def test_a_slice_of_a_kunlun_card_is_a_quarter_a_half_or_all_of_it(asked: int, memory: int, cores: int) -> None:
    assert ask(XPU, count=1, memory=asked) == DeviceRequest(1, memory, 0, cores, vendor="XPU", one_size=True)


def test_several_kunlun_cards_are_refused_because_of_their_links() -> None:
    assert ask(XPU, count=2) == "several cards are chosen by their links, not managed"


def test_iluvatar_counts_memory_in_256_mib_and_several_cards_are_whole() -> None:
    vendor = VENDORS["iluvatar-mr-v100"]
    assert ask(vendor, count=1, memory=4, cores=30) == DeviceRequest(1, 1024, 0, 30, vendor="MR-V100")
    assert ask(vendor, count=2, memory=4, cores=200) == DeviceRequest(2, 1024, 0, 100, vendor="MR-V100")
    assert ask(vendor, count=2) == DeviceRequest(2, 0, 100, 100, whole=True, vendor="MR-V100")


@pytest.mark.parametrize(
    "asked,memory", [(1, 3072), (3072, 3072), (3073, 6144), (12_288, 12_288), (12_289, 21_527), (24_576, 21_527)]
)
def test_ascend_rounds_memory_up_to_a_template_or_the_whole_card(asked: int, memory: int) -> None:
    assert ask(VENDORS["ascend-310p"], count=1, memory=asked) == DeviceRequest(1, memory, 0, 0, vendor="Ascend310P")


def test_ascend_refuses_what_its_plain_mode_has_not() -> None:
    vendor = VENDORS["ascend-910b3"]
    assert ask(vendor, count=1, memory=65_537) == "must be an integer number of MiB up to 65536"
    assert ask(vendor, count=2, memory=8192) == "several cards must be asked for whole"
    assert ask(vendor, count=2, memory=65_536) == DeviceRequest(2, 65_536, 0, 0, vendor="Ascend910B3")
    soft = {"count": 1, "huawei.com/Ascend910B3-core": 20}
    assert ask(vendor, **soft) == "this way of sharing a card is not managed"


def test_a_container_may_ask_two_vendors() -> None:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10, "hygon.com/dcunum": 1, "hygon.com/dcumem": 20}
    requests, invalid = container_requests(ContainerResources(limits), (NVIDIA, HYGON), "c")
    assert [(each.vendor, each.memory) for each in requests] == [("NVIDIA", 10), ("DCU", 20)]
    assert invalid == ()


# -- registers ---------------------------------------------------------------------------------------------------------


def test_a_text_register_gives_cards_of_its_vendor() -> None:
    assert HYGON.register_format is RegisterFormat.TEXT
    text = "DCU-0,4,65536,100,Z100L,0,true,0,:DCU-1,4,65536,100,Z100L,1,false,1,hami-core:"
    register = read_register("n", decode_legacy_register(text), HYGON)
    assert [(each.uuid, each.vendor, each.healthy) for each in register.devices] == [
        ("DCU-0", "DCU", True),
        ("DCU-1", "DCU", False),
    ]


@pytest.mark.parametrize("name", ["vastai", "biren"])
def test_cores_are_a_hundred_whatever_the_register_of_a_slots_only_vendor_says(name: str) -> None:
    (device,) = read_register("n", [{"id": "a", "count": 8, "devmem": 1, "health": True}], VENDORS[name]).devices
    assert (device.cores, device.vendor) == (100, VENDORS[name].key)


def test_a_uuid_that_two_vendors_register_is_a_duplicated_card() -> None:
    entry = {"id": "same", "count": 1, "devmem": 10, "devcore": 100, "health": True}
    merged = merge_registers("n", [read_register("n", [entry], each) for each in (NVIDIA, HYGON)])
    assert [device.vendor for device in merged.devices] == ["NVIDIA"]
    assert merged.duplicated == {"same"}
    assert [problem.code for problem in merged.problems] == [ProblemCode.DUPLICATE_DEVICE]


def test_cards_of_one_vendor_beyond_the_limit_of_a_node_are_left_out_and_named() -> None:
    def cards(prefix: str) -> list[dict[str, object]]:
        return [{"id": f"{prefix}{at}", "count": 1, "devmem": 1, "devcore": 100, "health": True} for at in range(100)]

    merged = merge_registers("n", [read_register("n", cards(each.key), each) for each in (NVIDIA, HYGON)])
    assert {device.vendor for device in merged.devices} == {"NVIDIA"}
    assert "those of DCU are left out" in merged.problems[0].message


# -- reserved memory ---------------------------------------------------------------------------------------------------


def test_reserved_memory_is_taken_off_once_by_the_closest_model() -> None:
    reserved = ReservedMemory(((type_tokens("A100"), 500), (type_tokens("A100 SXM4 80GB"), 700), (("t4",), 450)))
    models = ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "Tesla T4", "NVIDIA A10", "NVIDIA T400")
    assert [reserved.of(model) for model in models] == [700, 500, 450, 0, 0]
    entries = [{"id": f"{at}", "count": 1, "devmem": 600, "type": model} for at, model in enumerate(models)]
    register = with_reserved(read_register("n", entries), reserved)
    shown = {each.uuid: (each.memory, each.reserved_memory) for each in register.devices}
    # A card never has negative memory, even if more is reserved than it has.
    assert shown == {"0": (0, 600), "1": (100, 500), "2": (150, 450), "3": (600, 0), "4": (600, 0)}
