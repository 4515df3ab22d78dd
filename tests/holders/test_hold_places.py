"""Sets of holds over the ledger of whole devices: what VMs' pods have already, budgets, and nodes that come and go.

They exist because a device of a VM and the request of its launcher are the same device, wherever the set is. They must
not repeat the cases of `test_hold_sets`. Invariant: after a pass every set is whole, and no node that takes a set has
more used than it has.
"""

from random import Random

import pytest

from accounting.holders import (
    Hold,
    HoldState,
    LedgerPlaces,
    RawDevices,
    RawRequest,
    VirtualMachineInstance,
    VmiKey,
    bind_set,
    full_pass,
    is_whole,
)

K, L = "k", "l"


class Kept:
    """A ledger in which passes decide."""

    def __init__(self, **capacity: int) -> None:
        self.devices = RawDevices(decides=True)
        for name, units in capacity.items():
            self.devices.put_node(name, {K: units, L: units})

    def vmi(
        self, name: str, units: int = 1, node: str | None = None, *, listed: tuple[str, ...] = (), key: str = K
    ) -> None:
        made = VirtualMachineInstance(
            "x", name, f"uid-{name}", node, frozenset(listed), ((key, units),) if units else ()
        )
        self.devices.put_vmi(made)

    def pod(self, name: str, units: int, node: str | None = "n1") -> None:
        self.devices.put_pod(RawRequest(name, "x", name, ((K, units),), node))

    def go(self) -> list[str]:
        """A full pass; the VMs whose sets it has changed."""
        passed = full_pass(self.devices.holds(), LedgerPlaces(self.devices), lambda _, __: None)
        return sorted({key.name for key in passed if key is not None})

    def set(self, name: str) -> tuple[str | None, str]:
        (place,) = {(hold.node, hold.state.value) for hold in self.devices.holds()[VmiKey("x", name)]}
        return place

    def used(self, node: str = "n1") -> int:
        return self.devices.units.used_on(node, K)


def test_what_is_held_for_a_vm_that_has_no_pod_yet_goes_to_the_fullest_node_with_room() -> None:
    kept = Kept(n1=8, n2=8, n3=8)
    kept.pod("p", 7, "n1")
    kept.pod("q", 5, "n2")
    kept.vmi("a", 2)
    assert kept.go() == ["a"]
    assert kept.set("a") == ("n2", "Bound")
    assert (kept.used("n2"), kept.go()) == (7, [])


def test_a_set_is_where_its_vm_runs_and_its_launcher_adds_nothing() -> None:
    kept = Kept(n1=4, n2=4)
    kept.vmi("a", 2)
    kept.go()
    assert kept.set("a") == ("n1", "Bound")
    kept.pod("l", 2, "n2")
    kept.vmi("a", 2, "n2", listed=("l",))
    assert (kept.set("a"), kept.used("n1"), kept.used("n2")) == (("n2", "Bound"), 0, 2)


def test_c_14_the_set_of_a_running_vm_is_lost_with_its_node_and_comes_back() -> None:
    kept = Kept(n1=4)
    kept.pod("l", 2)
    kept.vmi("a", 2, "n1", listed=("l",))
    kept.devices.put_node("n1", {K: 0})
    assert kept.go() == ["a"]
    assert kept.set("a") == (None, "Lost")
    # The node counts the pod, since a Lost set holds nothing there; the budget counts the set, and the pod not again.
    assert (kept.used(), kept.devices.units.used_in("x", K)) == (2, 2)
    kept.devices.put_node("n1", {K: 4})
    assert kept.go() == ["a"]
    assert (kept.set("a"), kept.used()) == (("n1", "Bound"), 2)


def test_a_set_that_left_the_node_of_its_vm_goes_back_once_there_is_room() -> None:
    kept = Kept(n1=4, n2=4)
    kept.vmi("a", 2, "n1")
    kept.devices.put_node("n1", {K: 0})
    kept.go()
    assert kept.set("a") == ("n2", "Bound")
    kept.devices.put_node("n1", {K: 4})
    kept.go()
    assert kept.set("a") == ("n1", "Bound")


def test_a_node_that_owes_gives_up_a_set_only_if_that_frees_something() -> None:
    kept = Kept(n1=4)
    kept.pod("l", 2)
    kept.vmi("a", 2, "n1", listed=("l",))
    kept.vmi("b", 1, "n1")
    kept.pod("other", 2)
    assert kept.used() == 5
    assert kept.go() == ["b"]
    assert (kept.set("a"), kept.set("b"), kept.used()) == (("n1", "Bound"), (None, "Lost"), 4)
    assert kept.go() == []


def test_s_05_lost_sets_are_bound_before_new_ones() -> None:
    kept = Kept(n1=2)
    kept.vmi("z", 2, "n1")
    kept.devices.put_node("n1", {})
    kept.go()
    kept.vmi("a", 2)
    kept.devices.put_node("n1", {K: 2})
    kept.go()
    assert (kept.set("z"), kept.set("a")) == (("n1", "Bound"), (None, "Pending"))


def test_c_15_a_new_order_beyond_its_budget_is_not_bound_until_a_lost_set_is_gone() -> None:
    kept = Kept(n1=8)
    kept.devices.set_budgets({("x", K): 4})
    kept.vmi("bound", 2, "n1")
    kept.vmi("lost", 1)
    lost = kept.devices.holds()[VmiKey("x", "lost")]
    kept.devices.put_holds(VmiKey("x", "lost"), [hold.lost() for hold in lost])
    kept.devices.put_node("n1", {K: 2})
    kept.pod("other", 1, "elsewhere")
    assert kept.devices.units.used_in("x", K) == 4
    kept.vmi("new", 1)
    kept.devices.put_node("n1", {K: 8})
    kept.devices.put_holds(VmiKey("x", "lost"), [hold.lost() for hold in lost])
    kept.go()
    assert kept.set("new") == (None, "Pending")
    assert kept.set("lost") == ("n1", "Bound")
    kept.devices.remove_vmi(VmiKey("x", "lost"))
    assert kept.devices.units.used_in("x", K) == 4
    kept.go()
    assert kept.set("new") == ("n1", "Bound")


def test_a_bind_takes_the_whole_set_along_or_leaves_it() -> None:
    kept = Kept(n1=4, n2=1)
    kept.vmi("a", 2, listed=("l",))
    kept.go()
    holds = kept.devices.holds()[VmiKey("x", "a")]
    kept.pod("l", 1, "n2")
    assert bind_set(holds, "n2", LedgerPlaces(kept.devices)) == holds
    kept.devices.put_node("n2", {K: 2})
    assert {hold.node for hold in bind_set(holds, "n2", LedgerPlaces(kept.devices))} == {"n2"}
    assert (kept.used("n1"), kept.used("n2")) == (0, 2)


def test_nothing_is_kept_for_a_vm_that_is_gone() -> None:
    kept = Kept(n1=4)
    kept.vmi("a", 2)
    kept.go()
    kept.devices.remove_vmi(VmiKey("x", "a"))
    assert (dict(kept.devices.holds()), kept.used()) == ({}, 0)


def test_d_01_where_passes_do_not_decide_a_vm_still_ends() -> None:
    devices = RawDevices()
    devices.put_node("n1", {K: 4})
    devices.put_vmi(VirtualMachineInstance("x", "a", "u", "n1", frozenset(), ((K, 2),)))
    devices.put_vmi(VirtualMachineInstance("x", "b", "v", None, frozenset(), ((K, 1),)))
    assert devices.units.used_on("n1", K) == 2
    devices.put_vmi(VirtualMachineInstance("x", "a", "u", "n1", frozenset(), ((K, 2),), is_over=True))
    devices.remove_vmi(VmiKey("x", "b"))
    assert (dict(devices.holds()), devices.units.used_on("n1", K), devices.units.used_in("x", K)) == ({}, 0, 0)


@pytest.mark.parametrize("seed", range(40))
def test_after_a_pass_every_set_is_whole_and_fits_and_nothing_is_left_to_do(seed: int) -> None:
    """Whatever has happened: spread and partly Lost sets, nodes that shrank, pods of others."""
    chance, kept = Random(seed), Kept(n1=4, n2=4, n3=3)
    for number in range(8):
        kept.vmi(f"v{number}", chance.randint(1, 3), chance.choice((None, "n1", "n2")), listed=(f"l{number}",))
        if chance.random() < 0.4:
            kept.pod(f"l{number}", chance.randint(1, 3), chance.choice((None, "n1", "n2", "n3")))
        key = VmiKey("x", f"v{number}")
        spread = [
            Hold("s", key, K, 1, node, HoldState.BOUND if node else HoldState.LOST)
            for node in chance.choices((None, "n1", "n2", "gone"), k=chance.randint(1, 3))
        ]
        if chance.random() < 0.5:
            kept.devices.put_holds(key, spread)
    kept.devices.put_node("n1", {K: chance.randint(0, 5)})
    kept.go()
    for holds in kept.devices.holds().values():
        assert is_whole(holds)
        assert all((hold.node is not None) == (hold.state is HoldState.BOUND) for hold in holds)
    for node in ("n1", "n2", "n3"):
        have = kept.devices.allocatable(K).get(node, 0)
        pods = sum(dict(pod.units)[K] for pod in kept.devices.pods() if pod.node == node)
        assert kept.used(node) <= max(have, pods), "a set was put where nothing was free"
    for _ in range(4):
        # A set that moves may make room for another one; that ends.
        if not kept.go():
            break
    assert kept.go() == []
