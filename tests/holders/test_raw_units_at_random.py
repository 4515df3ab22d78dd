"""The sums of raw units against the reference, over random events in any order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from accounting.holders import Hold, Launchers, Migration, RawPod, RawUnits, VirtualMachineInstance, VmiKey
from accounting.reference import holders as reference
from accounting.reference.holders import Kept, Launched, World

K = "k"
NAMESPACES, NODES = ("x", "y"), ("n1", "n2")
uids = st.sampled_from(["p1", "p2", "p3"])
namespaces = st.sampled_from(["x", "x", "y"])
vmi_keys = st.sampled_from([VmiKey("x", "a"), VmiKey("x", "b"), VmiKey("y", "a")])
migrations = st.none() | st.builds(Migration, st.just("p1"), st.just("p2"), st.booleans())
hold_places = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([*NODES, None])), min_size=1, max_size=2)


class Units(RuleBasedStateMachine):
    """VMIs that list and unlist, pods that come, move on and end, holds that are kept and lost."""

    def __init__(self) -> None:
        super().__init__()
        self.launchers, self.units = Launchers(), RawUnits()
        self.vmis: dict[VmiKey, VirtualMachineInstance] = {}
        self.pods: dict[str, Launched] = {}
        self.kept: dict[VmiKey, list[Kept]] = {}

    @rule(key=vmi_keys, listed=st.frozensets(uids), migration=migrations)
    def put_vmi(self, key: VmiKey, listed: frozenset[str], migration: Migration | None) -> None:
        self.vmis[key] = VirtualMachineInstance(*key, f"uid-{key}", None, listed, (), migration)
        self.launchers.put(self.vmis[key])
        self._count_again()

    @rule(key=vmi_keys)
    def remove_vmi(self, key: VmiKey) -> None:
        self.vmis.pop(key, None)
        self.launchers.remove(key)
        self._count_again()

    @rule(uid=uids, namespace=namespaces, node=st.sampled_from(NODES), units=st.integers(0, 4))
    def put_pod(self, uid: str, namespace: str, node: str, units: int) -> None:
        self.pods[uid] = Launched(uid, namespace, uid, node, units)
        self._count_again()

    @rule(uid=uids)
    def end_pod(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.units.remove_pod(uid)
        self._count_again()

    @rule(key=vmi_keys, places=hold_places)
    def put_holds(self, key: VmiKey, places: list[tuple[int, str | None]]) -> None:
        self.kept[key] = [Kept(key, units, node) for units, node in places]
        holds = [Hold("set", key, K, units) for units, _ in places]
        self.units.put_holds(
            key, [hold.on(node) if node else hold.lost() for hold, (_, node) in zip(holds, places, strict=True)]
        )

    @rule(uid=uids, namespace=namespaces, node=st.sampled_from(NODES), units=st.integers(0, 4))
    def a_candidate_adds_what_it_says(self, uid: str, namespace: str, node: str, units: int) -> None:
        others = [pod for pod in self.pods.values() if pod.uid != uid]
        candidate = Launched(uid, namespace, uid, node, units)
        without, beside = self._world(others), self._world([*others, candidate])
        pod = RawPod(uid, namespace, node, ((K, units),), self.launchers.vmi_of(namespace, uid))
        assert self.units.new_units(pod, K) == reference.used_on(beside, node) - reference.used_on(without, node)

    @invariant()
    def the_sums_are_those_of_the_objects(self) -> None:
        world = self._world(list(self.pods.values()))
        for node in NODES:
            assert self.units.used_on(node, K) == reference.used_on(world, node)
        for namespace in NAMESPACES:
            assert self.units.used_in(namespace, K) == reference.used_in(world, namespace)
        for pod in self.pods.values():
            assert self.launchers.vmi_of(pod.namespace, pod.uid) == reference.launched_by(world, pod)

    def _world(self, pods: list[Launched]) -> World:
        return World(list(self.vmis.values()), pods, [each for kept in self.kept.values() for each in kept])

    def _count_again(self) -> None:
        """Record every pod as it is now, as the shell does for pods that a change of a VMI concerns."""
        for pod in self.pods.values():
            vmi = self.launchers.vmi_of(pod.namespace, pod.uid)
            self.units.put_pod(RawPod(pod.uid, pod.namespace, pod.node, ((K, pod.units),), vmi, self._source(pod, vmi)))

    def _source(self, pod: Launched, key: VmiKey | None) -> tuple[tuple[str, int], ...]:
        migration = self.vmis[key].migration if key in self.vmis else None
        source = None if migration is None else self.pods.get(migration.source_pod)
        if key is None or migration is None or source is None or not migration.is_running:
            return ()
        is_target = pod.name == migration.target_pod
        return ((K, source.units),) if is_target and self.launchers.vmi_of(source.namespace, source.uid) == key else ()


TestUnits = Units.TestCase
TestUnits.settings = settings(max_examples=80, stateful_step_count=40)
