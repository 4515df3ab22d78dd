"""Which pods must go, on nodes written by hand.

It exists for the rules that a comparison with every set does not show: who is never a victim, what waiting is worth,
quotas, cards in MIG mode. It must not know how sets are tried. Invariant: a victim is named with the reason that the
test gives for it.
"""

from collections.abc import Iterable, Sequence

from accounting.answers.preemption import (
    NodePod,
    NoVictims,
    Occupied,
    Offer,
    Outcome,
    Preemptor,
    Standing,
    Victims,
    preempt,
    preempting,
)
from accounting.mig_profiles import MigInstance, MigProfile
from accounting.node import Device, Node
from accounting.pod import Allocation, FurtherRow, Pod
from accounting.pod_info import Room
from accounting.pod_record import PodRecord, record_pod
from accounting.quota import Exceeded, Limit, QuotaCheck
from accounting.vendor import DEFAULT_VENDOR_KEY
from tests.builders import (
    app,
    init,
    make_allocation,
    make_cache,
    make_device,
    make_node,
    make_pod,
    make_unreadable,
    snapshot_bytes,
)

GIVEN = Room((("cpu", 1000),))


def on(name: str, *rows: tuple[str, int, int], namespace: str = "default") -> Pod:
    """A bound pod with one app on these cards."""
    return make_pod(
        name, [app(rows[0][1])], namespace=namespace, node="n1", allocation=make_allocation(rows), inits_over=True
    )


def resident(pod: Pod, priority: int = 0, **more: object) -> NodePod:
    return NodePod(record_pod(pod), priority, **more)  # type: ignore[arg-type]


def ask(
    node: Node,
    residents: Sequence[NodePod],
    pods: Iterable[Pod],
    preemptor: Preemptor,
    *,
    offered: tuple[str, ...] = (),
    allowed: Sequence[int] = (),
    kept: tuple[NodePod, ...] = (),
    allocatable: dict[str, int] | None = None,
) -> Outcome:
    cache = make_cache([node], pods)
    snapshot = cache.snapshot()
    before = snapshot_bytes(snapshot)
    occupied = Occupied("n1", snapshot.rows["n1"], cache.positions("n1"), tuple(residents), allocatable)
    found = preempt(snapshot, preemptor, [Offer(occupied, offered, kept)], allowed)[0]
    assert snapshot_bytes(snapshot) == before
    return found


def names(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Victims), outcome
    return [pod.record.name for pod in outcome.pods]


def wants(*memory: int, count: int = 1, cores: int = 0, name: str = "arriving") -> Preemptor:
    return Preemptor(make_pod(name, [app(mib, count=count, cores=cores) for mib in memory]), 100)


def two_cards() -> Node:
    return make_node(devices=[make_device(f"GPU-{i}", index=i, memory=24000) for i in range(2)])


def test_one_victim_where_one_is_enough() -> None:
    pods = [on("a", ("GPU-0", 8000, 0)), on("b", ("GPU-0", 8000, 0))]
    node = make_node(devices=[make_device(memory=24000)])
    assert names(ask(node, [resident(pod) for pod in pods], pods, wants(12000))) == ["a"]


def test_the_pair_of_cards_that_costs_least() -> None:
    cards = [make_device(f"GPU-{i}", index=i, memory=24000) for i in range(4)]
    held = [("a", 0, 8000, 50), ("b", 1, 8000, 10), ("c", 2, 8000, 10), ("d", 3, 8000, 20), ("e", 3, 4000, 5)]
    pods = [on(name, (f"GPU-{card}", memory, 0)) for name, card, memory, _ in held]
    residents = [resident(pod, priority) for pod, (*_, priority) in zip(pods, held, strict=True)]
    assert names(ask(make_node(devices=cards), residents, pods, wants(20000, count=2))) == ["b", "c"]


def test_a_pod_on_both_cards_goes_rather_than_two_of_its_priority() -> None:
    pods = [
        on("a", ("GPU-0", 8000, 0)),
        on("b", ("GPU-1", 8000, 0)),
        on("both", ("GPU-0", 4000, 0), ("GPU-1", 4000, 0)),
    ]
    assert names(ask(two_cards(), [resident(pod) for pod in pods], pods, wants(16000, count=2))) == ["both"]


def test_an_exclusive_card_needs_everybody_gone_from_one_card() -> None:
    pods = [on("a", ("GPU-0", 1000, 0)), on("b", ("GPU-0", 1000, 0)), on("c", ("GPU-1", 9000, 0))]
    residents = [resident(pods[0], 1), resident(pods[1], 2), resident(pods[2], 2)]
    assert names(ask(two_cards(), residents, pods, wants(1000, cores=100))) == ["c"]


def test_of_equal_sets_the_one_that_frees_less_and_then_the_one_that_started_last() -> None:
    pods = [on("big", ("GPU-0", 20000, 0)), on("old", ("GPU-1", 12000, 0))]
    residents = [resident(pods[0], started=9), resident(pods[1], started=1)]
    assert names(ask(two_cards(), residents, pods, wants(20000))) == ["old"]
    pods[0] = on("young", ("GPU-0", 12000, 0))
    residents[0] = resident(pods[0], started=9)
    assert names(ask(two_cards(), residents, pods, wants(20000))) == ["young"]


def test_a_pod_under_a_spent_budget_stays_if_any_other_does() -> None:
    pods = [on("guarded", ("GPU-0", 12000, 0)), on("dear", ("GPU-1", 12000, 0))]
    residents = [resident(pods[0], 0, budgets=(0,)), resident(pods[1], 99)]
    assert names(ask(two_cards(), residents, pods, wants(20000), allowed=(0,))) == ["dear"]
    only = ask(two_cards(), [residents[0], resident(pods[1], 100)], pods, wants(20000), allowed=(0,))
    assert isinstance(only, Victims)
    assert (names(only), only.cost.violations) == (["guarded"], 1)


def test_nobody_of_the_same_priority_nobody_protected_and_nobody_for_a_pod_that_never_preempts() -> None:
    pod = on("a", ("GPU-0", 24000, 0))
    node = make_node(devices=[make_device(memory=24000)])
    assert ask(node, [resident(pod, 100)], [pod], wants(1000)) is NoVictims.NOT_ENOUGH
    assert ask(node, [resident(pod, standing=Standing.PROTECTED)], [pod], wants(1000)) is NoVictims.NOT_ENOUGH
    assert ask(node, [resident(pod)], [pod], wants(1000)._replace(never=True)) is NoVictims.NOT_ENOUGH
    assert names(ask(node, [resident(pod)], [pod], wants(1000))) == ["a"]


def test_where_waiting_is_enough_nobody_goes() -> None:
    pods = [on("leaving", ("GPU-0", 16000, 0)), on("staying", ("GPU-0", 8000, 0))]
    node = make_node(devices=[make_device(memory=24000)])
    residents = [resident(pods[0], standing=Standing.LEAVING), resident(pods[1])]
    assert ask(node, residents, pods, wants(16000)) is NoVictims.WAIT
    assert ask(node, residents, pods, wants(16000), offered=("uid-leaving",)) is NoVictims.WAIT
    assert names(ask(node, residents, pods, wants(20000))) == ["staying"]
    # What comes free is kept for a pod that goes before this one.
    kept = resident(on("nominated", ("GPU-0", 10000, 0)), 200)
    assert names(ask(node, residents, pods, wants(10000), kept=(kept,))) == ["staying"]
    assert ask(node, residents, pods, wants(16000), kept=(kept,)) is NoVictims.NOT_ENOUGH


def test_what_an_init_holds_counts_only_until_it_is_over() -> None:
    pod = make_pod(
        "a",
        [init(20000), app(4000)],
        node="n1",
        allocation=make_allocation([("GPU-0", 20000, 0)], [("GPU-0", 4000, 0)]),
    )
    node = make_node(devices=[make_device(memory=24000)])
    assert ask(node, [resident(pod._replace(inits_over=True))], [pod._replace(inits_over=True)], wants(20000)) is (
        NoVictims.WAIT
    )
    assert names(ask(node, [resident(pod)], [pod], wants(20000))) == ["a"]


def test_a_preemptor_whose_init_needs_most() -> None:
    pods = [on("a", ("GPU-0", 6000, 0)), on("b", ("GPU-0", 12000, 0))]
    node = make_node(devices=[make_device(memory=24000)])
    preemptor = Preemptor(make_pod("arriving", [init(18000), app(2000)]), 100)
    assert names(ask(node, [resident(pod) for pod in pods], pods, preemptor)) == ["b"]


def test_a_pod_that_blocks_its_card_or_its_node_is_freed_with_it() -> None:
    blocking = make_pod("blind", [app(1000)], node="n1", allocation=make_unreadable("GPU-0"))
    pods = [blocking, on("a", ("GPU-1", 20000, 0))]
    residents = [resident(pods[0], 0), resident(pods[1], 1)]
    assert names(ask(two_cards(), residents, pods, wants(8000))) == ["blind"]
    pods = [make_pod("blind", [app(1000)], node="n1"), on("a", ("GPU-1", 20000, 0))]
    residents = [resident(pods[0], 0), resident(pods[1], 1)]
    assert names(ask(two_cards(), residents, pods, wants(8000))) == ["blind"]


# -- what kube-scheduler offers ----------------------------------------------------------------------------------------


def test_an_offered_victim_stays_one_unless_the_node_provably_has_room() -> None:
    pods = [on("offered", ("GPU-0", 2000, 0)), on("needed", ("GPU-1", 20000, 0))]
    node = make_node(devices=[make_device("GPU-0", memory=8000), make_device("GPU-1", index=1, memory=24000)])
    residents = [resident(pods[0], 0, room=GIVEN), resident(pods[1], 1, room=GIVEN)]
    preemptor = wants(20000)._replace(room=GIVEN)
    has = {"cpu": 2000, "pods": 2}

    def asked(**changed: object) -> list[str]:
        arguments: dict[str, object] = {"preemptor": preemptor, "residents": residents, "allocatable": has} | changed
        return names(ask(node, pods=pods, offered=("uid-offered",), **arguments))  # type: ignore[arg-type]

    assert asked() == ["needed"]
    both = ["needed", "offered"]
    assert asked(allocatable=None) == both
    assert asked(allocatable={"cpu": 1999, "pods": 2}) == both
    assert asked(allocatable={"cpu": 2000, "pods": 1}) == both
    assert asked(preemptor=preemptor._replace(room=None)) == both
    assert asked(preemptor=preemptor._replace(room=GIVEN._replace(plain=False))) == both
    assert asked(residents=[residents[0]._replace(room=GIVEN._replace(plain=False)), residents[1]]) == both
    assert asked(residents=[residents[0]._replace(room=None), residents[1]]) == both
    fpga = Room((("cpu", 1000), ("example.com/fpga", 1)))
    assert asked(preemptor=preemptor._replace(room=fpga)) == both
    # What kube-scheduler is told to ignore counts only where a node advertises it.
    ignored = preemptor._replace(room=fpga, unless_advertised=frozenset({"example.com/fpga"}))
    assert asked(preemptor=ignored) == ["needed"]


def test_an_offered_victim_without_cards_is_kept_for_its_cpu() -> None:
    web = make_pod("web", node="n1")
    card = on("card", ("GPU-0", 20000, 0))
    residents = [resident(web, 0, room=Room((("cpu", 3000),))), resident(card, 1, room=GIVEN)]
    node, preemptor = make_node(devices=[make_device(memory=24000)]), wants(20000)._replace(room=GIVEN)
    found = ask(
        node, residents, [card], preemptor, offered=("uid-web", "uid-card"), allocatable={"cpu": 4000, "pods": 9}
    )
    assert names(found) == ["card"]
    found = ask(
        node, residents, [card], preemptor, offered=("uid-web", "uid-card"), allocatable={"cpu": 3999, "pods": 9}
    )
    assert names(found) == ["card", "web"]


def test_a_node_where_an_offered_victim_must_not_go_is_no_answer() -> None:
    pods = [on("daemon", ("GPU-0", 2000, 0)), on("a", ("GPU-0", 20000, 0))]
    node = make_node(devices=[make_device(memory=24000)])
    residents = [resident(pods[0], standing=Standing.PROTECTED, room=GIVEN), resident(pods[1], room=GIVEN)]
    preemptor = wants(20000)._replace(room=GIVEN)
    assert ask(node, residents, pods, preemptor, offered=("uid-daemon",)) is NoVictims.PROTECTED
    found = ask(node, residents, pods, preemptor, offered=("uid-daemon",), allocatable={"cpu": 2000, "pods": 2})
    assert names(found) == ["a"]


def test_an_offered_pod_that_is_not_known_is_left_to_kube_scheduler() -> None:
    pod = on("a", ("GPU-0", 20000, 0))
    node = make_node(devices=[make_device(memory=24000)])
    assert names(ask(node, [resident(pod)], [pod], wants(20000), offered=("uid-ghost",))) == ["a"]
    assert names(ask(node, [resident(pod)], [pod], wants(2000), offered=("uid-ghost",))) == []


# -- quotas and cards in MIG mode --------------------------------------------------------------------------------------


def test_over_its_quota_only_pods_of_its_own_namespace_help() -> None:
    pods = [on("theirs", ("GPU-0", 20000, 0), namespace="b"), on("own", ("GPU-1", 20000, 0), namespace="a")]
    limit = Limit("a", "q", "nvidia.com/gpumem", 20000, (), enforced_by_api=False)

    def quota(gone: Sequence[PodRecord]) -> QuotaCheck:
        used = 20000 - sum(record.held_total.memory for record in gone if record.namespace == "a")
        return QuotaCheck((Exceeded(limit, used, 12000),) if used + 12000 > limit.hard else ())

    preemptor = wants(12000)._replace(quota=quota)
    preemptor = preemptor._replace(pod=preemptor.pod._replace(namespace="a"))
    residents = [resident(pods[0], 0), resident(pods[1], 1)]
    assert names(ask(two_cards(), residents, pods, preemptor)) == ["own"]
    assert ask(two_cards(), [residents[0], resident(pods[1], 100)], pods, preemptor) is NoVictims.NOT_ENOUGH


def test_an_instance_on_a_card_in_mig_mode_makes_room_for_another() -> None:
    layout = (MigProfile("3g.20gb", 20000, 43, 3, ((0, 4), (4, 4))), MigProfile("7g.40gb", 40000, 100, 7, ((0, 8),)))
    card = Device("GPU-0", 0, 7, 40000, 100, mode="mig", layout=layout)

    def instance(name: str, start: int) -> Pod:
        row = FurtherRow.of("GPU-0", 20000, 43, DEFAULT_VENDOR_KEY, MigInstance("3g.20gb", start, 4))
        allocation: Allocation = ((row,),)
        return make_pod(name, [app(20000)], node="n1", allocation=allocation)

    pods = [instance("low", 0), instance("high", 4)]
    residents = [resident(pods[0], 3), resident(pods[1], 2)]
    node = make_node(devices=[card])
    assert names(ask(node, residents, pods, wants(15000))) == ["high"]
    assert names(ask(node, residents, pods, wants(30000))) == ["low", "high"]


def test_many_pods_on_a_node_are_decided_in_bounded_steps() -> None:
    cards = [make_device(f"GPU-{i}", index=i, memory=80000, slots=10) for i in range(8)]
    pods = [on(f"p{i:02}", (f"GPU-{i % 8}", 7000 + i, 0)) for i in range(80)]
    node, residents = make_node(devices=cards), [resident(pod, i) for i, pod in enumerate(pods)]
    found = ask(node, residents, pods, wants(40000, count=8))
    assert isinstance(found, Victims)
    assert found.limited
    assert len(found.pods) == 40
    snapshot = make_cache([node], pods).snapshot()
    occupied = Occupied("n1", snapshot.rows["n1"], make_cache([node]).positions("n1"), tuple(residents))
    # 4,096 sets, at most 256 of them in a step.
    assert sum(1 for _ in preempting(snapshot, wants(40000, count=8), [Offer(occupied)])) > 16
