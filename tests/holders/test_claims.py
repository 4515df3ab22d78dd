"""Cards that DRA claims hold: cases DR-01 to DR-24, as far as they concern one claim and one table of devices."""

import uuid
from collections.abc import Mapping

import pytest

from accounting.holders import (
    Claim,
    ClaimHolding,
    DeviceId,
    DeviceTable,
    Result,
    Slice,
    SliceDevice,
    charged_devices,
    held_by_claim,
)
from accounting.holders.dra_devices import HAMI_DRIVER, NVIDIA_DRIVER
from accounting.holdings import DeviceUse, Resources

MIB = 2**20
PCI = "0000:18:00.0"
TOTALS = {("n1", "GPU-a"): Resources(10, 24576, 100), ("n1", "GPU-m"): Resources(7, 40960, 105)}
WHOLE = DeviceUse("GPU-a", 10, 24576, 100, exclusive=True)


def gpu(minor: int, uid: str, **more: str) -> SliceDevice:
    return SliceDevice(f"gpu-{minor}", {"type": "gpu", "uuid": uid} | more, {"memory": 24576 * MIB})


def mig(name: str, memory_mib: int, multiprocessors: int, parent: str = "GPU-m") -> SliceDevice:
    attributes = {"type": "mig", "uuid": f"MIG-{name}", "parentUUID": parent}
    return SliceDevice(name, attributes, {"memory": memory_mib * MIB, "multiprocessors": multiprocessors})


def table(*devices: SliceDevice, driver: str = NVIDIA_DRIVER, generation: int = 1) -> DeviceTable:
    devices = devices or (gpu(0, "GPU-a", **{"resource.kubernetes.io/pciBusID": PCI}), gpu(1, "GPU-b"))
    made = DeviceTable()
    made.put(Slice("s", driver, "n1", generation, "n1", devices))
    return made


def hami_table() -> DeviceTable:
    return table(SliceDevice("hami-gpu-0", {"type": "hami-gpu", "uuid": "GPU-a"}), driver=HAMI_DRIVER)


def claim(*results: Result, node: str | None = None) -> Claim:
    return Claim("claim-uid", "ns", "claim", results, node)


def result(device: str, driver: str = NVIDIA_DRIVER, **more: object) -> Result:
    return Result(DeviceId(driver, "n1", device), **more)  # type: ignore[arg-type]


def share(memory_bytes: int | None, cores: int | None, number: str = "1") -> Result:
    return result("hami-gpu-0", HAMI_DRIVER, share_id=number, memory_bytes=memory_bytes, cores=cores)


def held(claimed: Claim, devices: DeviceTable, totals: Mapping[tuple[str, str], Resources] = TOTALS) -> ClaimHolding:
    return held_by_claim(claimed, devices, lambda node, uuid: totals.get((node, uuid)))


def uses(holding: ClaimHolding) -> list[DeviceUse]:
    assert holding.unmapped == ()
    return [each.use for each in holding.cards]


def test_dr_01_a_result_without_a_share_takes_the_whole_card() -> None:
    holding = held(claim(result("gpu-0")), table())
    assert uses(holding) == [WHOLE]
    assert holding.cards[0].closed
    assert holding.cards[0].node == "n1"


def test_dr_03_two_shares_add_up_and_leave_the_rest_open() -> None:
    holding = held(claim(share(10 * 2**30, 30), share(10 * 2**30, 30, "2")), hami_table())
    assert uses(holding) == [DeviceUse("GPU-a", 2, 20480, 60)]
    assert not holding.cards[0].closed


@pytest.mark.parametrize(
    "memory_bytes, cores, expected",
    [
        pytest.param(1073741825, 0, (1, 1025, 0), id="DR-04-rounded-up"),
        pytest.param(None, 20, (1, 24576, 20), id="DR-05-all-memory"),
        pytest.param(1024 * MIB, None, (1, 1024, 100), id="DR-05-all-cores"),
    ],
)
def test_a_share_has_what_was_consumed(memory_bytes: int | None, cores: int | None, expected: tuple[int, ...]) -> None:
    (use,) = uses(held(claim(share(memory_bytes, cores)), hami_table()))
    assert (use.slots, use.memory, use.cores) == expected
    assert not use.exclusive


def test_dr_06_without_a_share_id_what_was_consumed_says_nothing() -> None:
    assert uses(held(claim(result("gpu-0", memory_bytes=2**30)), table())) == [WHOLE]


def test_dr_07_parts_of_a_card_in_mig_mode() -> None:
    devices = table(
        SliceDevice("gpu-1", {"type": "gpu", "uuid": "GPU-m"}),
        mig("gpu-1-mig-1g.5gb-19-0", 4864, 14),
        mig("gpu-1-mig-3g.20gb-9-4", 19968, 42),
        mig("gpu-1-mig-7g.40gb-0-0", 40192, 98),
    )
    holding = held(claim(result("gpu-1-mig-1g.5gb-19-0"), result("gpu-1-mig-3g.20gb-9-4")), devices)
    assert uses(holding) == [DeviceUse("GPU-m", 2, 24832, 56)]
    assert holding.cards[0].closed


def test_dr_08_a_dynamic_mig_device_that_is_gone_is_found_by_its_name() -> None:
    holding = held(claim(result("gpu-0-mig-1g5gb-19-4")), table())
    assert [each.use.uuid for each in holding.cards] == ["GPU-a"]
    assert holding.cards[0].closed


def test_dr_09_a_vfio_device_is_found_by_its_pci_address() -> None:
    devices, derived = table(), str(uuid.uuid5(uuid.NAMESPACE_DNS, PCI))
    assert derived == "8bb2ceb2-c757-577e-8ee3-7b2dfc594cc6"
    vfio = SliceDevice("gpu-vfio-0", {"type": "vfio", "uuid": derived, "resource.kubernetes.io/pciBusID": PCI})
    devices.put(Slice("s", NVIDIA_DRIVER, "n1", 2, "n1", (vfio,)))
    assert uses(held(claim(result("gpu-vfio-0")), devices)) == [WHOLE]


def test_dr_10_admin_access_takes_nothing() -> None:
    assert held(claim(result("gpu-0", admin_access=True)), table()) == ClaimHolding()


def test_dr_11_without_an_allocation_nothing_is_held() -> None:
    assert held(claim(), table()) == ClaimHolding()


def test_dr_15_two_results_are_two_cards() -> None:
    totals = TOTALS | {("n1", "GPU-b"): Resources(10, 24576, 100)}
    holding = held(claim(result("gpu-0"), result("gpu-1")), table(), totals)
    assert uses(holding) == [WHOLE, WHOLE._replace(uuid="GPU-b")]


def test_dr_17_a_device_of_an_incomplete_generation_stays_known() -> None:
    devices = table(generation=4)
    devices.put(Slice("s", NVIDIA_DRIVER, "n1", 5, "n1", (gpu(0, "GPU-a"),)))
    assert [each.use.uuid for each in held(claim(result("gpu-1")), devices).cards] == ["GPU-b"]


def test_an_older_generation_that_comes_late_teaches_nothing() -> None:
    devices = table(generation=5)
    devices.put(Slice("late", NVIDIA_DRIVER, "n1", 4, "n1", (gpu(0, "GPU-old"),)))
    assert uses(held(claim(result("gpu-0")), devices)) == [WHOLE]


def test_dr_18_a_device_that_is_known_nowhere_is_named_with_its_node() -> None:
    device = DeviceId(NVIDIA_DRIVER, "n1", "gpu-9")
    assert held(claim(result("gpu-9")), table()) == ClaimHolding((), (("n1", device),))
    other = Result(DeviceId(NVIDIA_DRIVER, "pool", "gpu-9"))
    assert held(claim(other, node="n7"), table()).unmapped[0][0] == "n7"
    assert held(claim(other), table()).unmapped[0][0] == "pool"


@pytest.mark.parametrize(
    "requests, expected",
    [
        pytest.param([("gpu", 5)], {"gpu": 5}, id="DR-20-exact-count"),
        pytest.param([("gpu", None)], {"gpu": 32}, id="DR-20-all"),
        pytest.param([("h100", 1), ("a100", 2)], {"h100": 1, "a100": 2}, id="DR-20-every-alternative"),
    ],
)
def test_quota_charges_what_may_be_asked(requests: list[tuple[str, int | None]], expected: dict[str, int]) -> None:
    assert charged_devices(requests) == expected


def test_attributes_may_be_spelt_with_their_domain() -> None:
    device = SliceDevice("gpu-0", {"gpu.nvidia.com/type": "gpu", "gpu.nvidia.com/uuid": "GPU-a"})
    assert uses(held(claim(result("gpu-0")), table(device))) == [WHOLE]


def test_dr_22_a_device_of_another_driver_is_ignored() -> None:
    assert held(claim(result("nic-0", driver="nic.example.com")), table()) == ClaimHolding()


def test_a_card_that_its_node_does_not_register_has_the_size_that_dra_says() -> None:
    (use,) = uses(held(claim(result("gpu-0")), table(), {}))
    assert (use.slots, use.memory, use.cores) == (1, 24576, 100)


def test_two_whole_results_on_one_card_are_told_as_crowded() -> None:
    (use,) = uses(held(claim(result("gpu-0"), result("gpu-0")), table()))
    assert use.crowded


def test_what_no_slice_has_is_forgotten_once_no_claim_names_its_pool() -> None:
    devices, gone, moved = table(), DeviceId(NVIDIA_DRIVER, "n1", "gpu-1"), DeviceId(NVIDIA_DRIVER, "n1", "gpu-0")
    devices.put(Slice("s", NVIDIA_DRIVER, "n1", 2, "n1", (gpu(0, "GPU-a"),)))
    assert devices.card(gone) is not None
    devices.forget_gone("n1")
    assert (devices.card(gone), devices.card(moved) is not None) == (None, True)
    devices.remove("s")
    assert devices.card(moved) is not None
    devices.forget_gone("n1")
    assert devices.card(moved) is None


def test_slices_of_drivers_without_gpus_are_not_kept() -> None:
    devices = DeviceTable()
    assert devices.put(Slice("nics", "nic.example.com", "n1", 1, "n1", (SliceDevice("nic-0", {"uuid": "N"}),))) == set()
    assert devices.names() == set()


def test_a_vfio_device_is_found_by_the_card_of_a_slice_that_comes_later() -> None:
    devices = DeviceTable()
    devices.put(
        Slice("v", NVIDIA_DRIVER, "n1", 1, "n1", (SliceDevice("gpu-vfio-0", {"type": "vfio", "pciBusID": PCI}),))
    )
    found = DeviceId(NVIDIA_DRIVER, "n1", "gpu-vfio-0")
    assert devices.card(found) is None
    devices.put(Slice("h", HAMI_DRIVER, "n1", 1, "n1", (gpu(0, "GPU-a", pciBusID=PCI),)))
    assert devices.card(found) is not None


def test_the_devices_of_a_card_are_told() -> None:
    devices = table(gpu(0, "GPU-m"), mig("gpu-0-mig-1g.5gb-19-0", 4864, 14), gpu(1, "GPU-b"))
    assert [each.device for each in devices.devices_on("n1", "GPU-m")] == ["gpu-0", "gpu-0-mig-1g.5gb-19-0"]
    assert devices.devices_on("n2", "GPU-m") == []
