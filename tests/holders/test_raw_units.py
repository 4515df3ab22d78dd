"""The numeric cases of launchers, raw keys and budgets: C-01 to C-18, P-01, P-02. One key K, capacity 8 unless said."""

import pytest

from accounting.holders import (
    Hold,
    HoldState,
    Launchers,
    RawPod,
    RawUnits,
    Room,
    VirtualMachineInstance,
    VmiKey,
    count_units,
    holds_of,
)
from accounting.holdings import peak_and_steady
from accounting.pod import ContainerKind

K = "nvidia.com/GH100_H200_SXM_141GB"
A = VmiKey("tenant", "a")


class Ledger:
    """VMIs and pods put together as the extender does: one classifier in front of one ledger."""

    def __init__(self) -> None:
        self.launchers = Launchers()
        self.units = RawUnits()
        self._pods: dict[str, tuple[str, str, str, int, tuple[tuple[str, int], ...]]] = {}

    def vmi(
        self, *listed: str, units: int = 2, node: str | None = "n1", name: str = "a", namespace: str = "tenant"
    ) -> None:
        vmi = VirtualMachineInstance(
            namespace, name, f"vmi-{name}", node, frozenset(listed), ((K, units),) if units else ()
        )
        self.units.put_holds(vmi.key, holds_of(vmi))
        for uid in self.launchers.put(vmi):
            if uid in self._pods:
                self._put(uid)

    def holds(self, *holds: tuple[int, str | None, HoldState], vmi: VmiKey = A) -> None:
        self.units.put_holds(vmi, [Hold(vmi.name, vmi, K, *each) for each in holds])

    def pod(self, uid: str, units: int, node: str = "n1", namespace: str = "tenant", migrates_from: int = 0) -> None:
        self._pods[uid] = uid, namespace, node, units, ((K, migrates_from),) if migrates_from else ()
        self._put(uid)

    def end(self, uid: str) -> None:
        del self._pods[uid]
        self.units.remove_pod(uid)

    def candidate(self, uid: str, units: int, node: str, namespace: str = "tenant") -> int:
        """Return the units that a pod would add on a node."""
        pod = RawPod(uid, namespace, node, ((K, units),), self.launchers.vmi_of(namespace, uid))
        return self.units.new_units(pod, K)

    def used(self, node: str = "n1") -> int:
        return self.units.used_on(node, K)

    def budget(self, namespace: str = "tenant") -> int:
        return self.units.used_in(namespace, K)

    def _put(self, uid: str) -> None:
        uid, namespace, node, units, source = self._pods[uid]
        vmi = self.launchers.vmi_of(namespace, uid)
        self.units.put_pod(RawPod(uid, namespace, node, ((K, units),), vmi, source))


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_c_01_a_listed_launcher_and_its_hold_are_one_use(ledger: Ledger) -> None:
    ledger.vmi("launcher")
    ledger.pod("launcher", 2)
    assert (ledger.used(), 8 - ledger.used()) == (2, 6)


def test_c_02_a_pod_that_is_not_listed_counts_beside_the_hold(ledger: Ledger) -> None:
    ledger.vmi()
    ledger.pod("claims to be one", 2)
    assert ledger.used() == 4


def test_c_03_a_pod_cannot_hide_behind_a_vm(ledger: Ledger) -> None:
    ledger.vmi("launcher")
    ledger.pod("launcher", 2)
    ledger.pod("spoofer", 6)
    assert ledger.used() == 8
    assert ledger.used() + ledger.candidate("next", 1, "n1") > 8


def test_c_04_what_a_launcher_requests_beyond_the_hold_counts(ledger: Ledger) -> None:
    ledger.vmi("launcher")
    ledger.pod("launcher", 3)
    assert ledger.used() == 3


def test_c_05_two_listed_pods_share_one_credit(ledger: Ledger) -> None:
    ledger.vmi("one", "two")
    ledger.pod("one", 2)
    ledger.pod("two", 2)
    assert ledger.used() == 4


def test_c_06_a_pod_made_again_under_the_name_is_another_pod(ledger: Ledger) -> None:
    ledger.vmi("old uid")
    ledger.pod("new uid", 2)
    assert ledger.used() == 4


def test_c_07_a_vmi_of_another_namespace_lists_in_vain(ledger: Ledger) -> None:
    ledger.vmi("pod", namespace="other")
    ledger.pod("pod", 2)
    assert ledger.launchers.vmi_of("tenant", "pod") is None
    assert ledger.used() == 4


def test_c_08_a_vmi_that_cannot_be_read_makes_no_launcher(ledger: Ledger) -> None:
    ledger.pod("pod", 2)
    assert ledger.used() == 2


def test_c_09_a_terminal_launcher_uses_no_credit(ledger: Ledger) -> None:
    ledger.vmi("ended", "running")
    ledger.pod("ended", 2)
    ledger.pod("running", 2)
    ledger.end("ended")
    assert ledger.used() == 2


def test_c_10_a_launcher_needs_nothing_new_where_its_vm_holds(ledger: Ledger) -> None:
    ledger.vmi("launcher", units=1)
    ledger.pod("others", 7)
    ledger.pod("also others", 7, node="n2")
    assert ledger.used() == 8
    assert (ledger.candidate("launcher", 1, "n1"), ledger.candidate("launcher", 1, "n2")) == (0, 1)


def test_c_11_before_it_is_listed_it_needs_all_of_its_units(ledger: Ledger) -> None:
    ledger.vmi(units=1)
    ledger.pod("others", 7)
    assert ledger.used() == 8
    assert ledger.candidate("launcher", 1, "n1") == 1
    ledger.vmi("launcher", units=1)
    assert ledger.candidate("launcher", 1, "n1") == 0


def test_c_12_the_target_of_a_migration_charges_the_budget_nothing(ledger: Ledger) -> None:
    ledger.vmi("source", "target", units=1)
    ledger.pod("source", 1)
    ledger.pod("target", 1, node="n2", migrates_from=1)
    assert (ledger.used("n1"), ledger.used("n2"), ledger.budget()) == (1, 1, 1)


def test_c_13_after_the_migration_both_count_until_the_source_has_ended(ledger: Ledger) -> None:
    ledger.vmi("source", "target", units=1)
    ledger.pod("source", 1)
    ledger.pod("target", 1, node="n2")
    assert ledger.budget() == 2
    ledger.end("source")
    assert ledger.budget() == 1


def test_c_14_a_lost_hold_counts_for_the_budget_and_not_for_the_node(ledger: Ledger) -> None:
    ledger.vmi("launcher", units=0)
    ledger.holds((1, None, HoldState.LOST), (1, None, HoldState.LOST))
    ledger.pod("launcher", 2)
    assert (ledger.used(), ledger.budget()) == (2, 2)


def test_c_15_lost_devices_count_until_they_are_deleted(ledger: Ledger) -> None:
    ledger.holds((2, "n1", HoldState.BOUND), (1, None, HoldState.LOST))
    ledger.pod("pod", 1)
    assert ledger.budget() == 4
    ledger.holds((2, "n1", HoldState.BOUND))
    assert ledger.budget() == 3


def test_c_16_only_entries_with_a_device_name_are_raw_units() -> None:
    assert count_units([K]) == ((K, 1),)
    assert count_units([]) == ()
    assert count_units([K, "b", K]) == (("b", 1), (K, 2))


def test_c_17_raw_keys_never_shrink() -> None:
    containers = [(ContainerKind.SIDECAR, 1), (ContainerKind.INIT, 4), (ContainerKind.APP, 1)]
    peak, _ = peak_and_steady((kind, [(K, (units,))]) for kind, units in containers)
    assert peak == {K: (5,)}


def test_c_18_a_doppelganger_and_the_real_launcher_never_add_up(ledger: Ledger) -> None:
    ledger.vmi("doppelganger", units=1)
    ledger.pod("doppelganger", 1)
    assert ledger.used() == 1
    ledger.end("doppelganger")
    assert ledger.used() == 1
    ledger.vmi("doppelganger", "launcher", units=1)
    ledger.pod("launcher", 1)
    assert ledger.used() == 1


def test_a_uid_that_two_vmis_list_is_a_launcher_of_neither(ledger: Ledger) -> None:
    ledger.vmi("pod")
    ledger.pod("pod", 2)
    assert ledger.used() == 2
    ledger.vmi("pod", name="b", units=0)
    assert ledger.launchers.vmi_of("tenant", "pod") is None
    assert ledger.used() == 4


def test_the_credit_is_lost_when_the_vmi_goes(ledger: Ledger) -> None:
    ledger.vmi("pod")
    ledger.pod("pod", 2)
    assert ledger.launchers.remove(A) == {"pod"}
    assert ledger.launchers.vmi_of("tenant", "pod") is None


def order(units: int) -> tuple[Hold, ...]:
    """A set of so many devices that is nowhere."""
    return (Hold("order", VmiKey("tenant", "order"), K, units),)


@pytest.mark.parametrize("units, node", [(1, "n1"), (2, "n2"), (3, "n2"), (4, "n3"), (7, None)])
def test_p_01_the_fullest_node_with_room(units: int, node: str | None) -> None:
    room = Room(dict.fromkeys([("n1", K), ("n2", K), ("n3", K)], 8), {("n1", K): 1, ("n2", K): 3, ("n3", K): 6})
    assert room.fullest(order(units)) == node


def test_p_02_equal_nodes_go_by_name() -> None:
    room = Room(dict.fromkeys([("n2", K), ("n1", K)], 8), {("n2", K): 2, ("n1", K): 2})
    assert room.fullest(order(2)) == "n1"


def test_of_nodes_that_are_left_alike_the_one_used_more_goes_first() -> None:
    room = Room({("n1", K): 4, ("n2", K): 8}, {("n1", K): 2, ("n2", K): 2})
    assert room.fullest(order(2)) == "n1"
    assert room.fullest(order(1)) == "n2"
