"""Random edits of quotas and events of pods on a cluster, compared with the slow reference after every one of them.

It exists because one wrong charge of a namespace stays for good. It must not know how charges are kept; it keeps the
quotas and pods that it showed to the cluster, and the reference counts those. Invariant: everything follows from the
seed, so an event's number finds the difference again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from accounting.answers.allocate import Placement
from accounting.answers.filter import filter_nodes
from accounting.node import Device, Node
from accounting.pod import Allocation, Container, ContainerKind, DeviceRequest, DeviceRow, Pod
from accounting.pod_state import PodState
from accounting.quota.objects import read_quota
from accounting.quota_scope import PodScope, ScopeRequirement, make_selector
from accounting.reference import fit as reference
from accounting.reference import quota as quota_reference
from accounting.reference import state as reference_state
from accounting.reference.quota import Written
from accounting.reference.state import Amounts
from accounting.status import CODES, Code
from benchmarks.random_run import Chance, Summary, drive, same
from extender.cluster import Cluster, Heard
from extender.config import Settings

NAMESPACES = ("a", "b", "c")
QUOTAS = ("q1", "q2", "q3")
SIZES = {"n1": (16, 48), "n2": (16, 16, 32), "n3": (24, 24)}
DIMENSIONS = quota_reference.DIMENSIONS
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores")
#: More than a quota admits, so that limits are reached, and exceeded by pods that others have bound.
MOST_PODS = 60
SCOPES = (
    (),
    (),
    (("PriorityClass", "In", ("high", "low")),),
    (("PriorityClass", "NotIn", ("high",)),),
    (("PriorityClass", "Exists", ()),),
    (("PriorityClass", "DoesNotExist", ()),),
    (("BestEffort", "Exists", ()),),
    (("NotBestEffort", "Exists", ()), ("Terminating", "Exists", ())),
    (("NotTerminating", "Exists", ()),),
    (("CrossNamespacePodAffinity", "Exists", ()),),
)


class World:
    """A cluster, and beside it the quotas and pods that were shown to it."""

    def __init__(self) -> None:
        self.cluster = Cluster(Settings(), deletions_are_told=True)
        self.quotas: dict[tuple[str, str], Written] = {}
        self.known: dict[str, Pod] = {}
        """Every pod that is not terminal, as it was last shown."""
        self.booked: dict[str, Pod] = {}
        """The pods on a node, with their cards."""
        self.states: dict[str, PodState] = {}
        self._charges: dict[str, tuple[Pod, Amounts]] = {}
        self.nodes = {name: node_of(name, sizes) for name, sizes in SIZES.items()}
        for node in self.nodes.values():
            self.cluster.cache.add_node(node)

    # -- events, told to the cluster and noted ----------------------------------------------------------------------

    def put_quota(self, quota: Written) -> None:
        settings = self.cluster.settings
        spelt = {
            f"{'limits' if hard % 2 else 'requests'}.{RESOURCES[DIMENSIONS.index(name)]}": str(hard)
            for name, hard in quota.hard.items()
        }
        selector = make_selector(ScopeRequirement(*each) for each in quota.scopes)
        read = read_quota(quota.namespace, quota.name, spelt, settings.vendor, selector)
        changed = self.cluster.put_quota(read)
        known = self.quotas.get((quota.namespace, quota.name))
        same("a change", changed, known is None or (dict(known.hard), known.scopes) != (dict(quota.hard), quota.scopes))
        self.quotas[quota.namespace, quota.name] = quota

    def remove_quota(self, namespace: str, name: str) -> None:
        same("a removal", self.cluster.remove_quota(namespace, name), (namespace, name) in self.quotas)
        self.quotas.pop((namespace, name), None)

    def see(self, pod: Pod) -> None:
        """Show a pod as the API server has it."""
        self.cluster.registry.tell(pod, Heard.WATCH)
        state = self.states.get(pod.uid)
        if pod.terminal:
            self._release(pod.uid)
            self.known.pop(pod.uid, None)
        elif pod.node is not None:
            self.known[pod.uid] = self.booked[pod.uid] = pod
            self.states[pod.uid] = PodState.ADDED
        elif state is not PodState.ADDED:
            self.known[pod.uid] = pod

    def assume(self, pod: Pod) -> None:
        self.cluster.registry.assume(pod)
        if self.states.get(pod.uid) is not PodState.ADDED:
            self.booked[pod.uid], self.states[pod.uid] = pod, PodState.ASSUMED

    def finish(self, uid: str) -> None:
        self.cluster.registry.finish_binding(uid)
        if self.states.get(uid) is PodState.ASSUMED:
            self.states[uid] = PodState.BOUND

    def forget(self, uid: str) -> None:
        self.cluster.registry.forget_binding(uid)
        if self.states.get(uid) is not PodState.ADDED:
            self._release(uid)

    def delete(self, uid: str) -> None:
        self.cluster.delete_pod(uid)
        self._release(uid)
        self.known.pop(uid, None)

    def _release(self, uid: str) -> None:
        self.booked.pop(uid, None)
        self.states.pop(uid, None)

    # -- comparing --------------------------------------------------------------------------------------------------

    def check(self, namespaces: tuple[str, ...] = NAMESPACES) -> None:
        """Compare what every namespace is charged, and for these namespaces every number of their limits."""
        for namespace in NAMESPACES:
            here = [self.charge(pod) for pod in self.booked.values() if pod.namespace == namespace]
            same(f"used of {namespace}", tuple(self.cluster.cache.used(namespace)), tuple(_sum(here)))
        for namespace in namespaces:
            have = {
                (limit.selector, limit.resource): (
                    limit.hard,
                    self.cluster.charges.used(limit),
                    self.cluster.charges.by_api(limit),
                )
                for limit in self.cluster.quotas.limits_of(namespace)
            }
            same(f"limits of {namespace}", have, self._limits(namespace))

    def _limits(self, namespace: str) -> dict[object, object]:
        found: dict[object, tuple[int, int, int]] = {}
        for quota in self.quotas_of(namespace):
            used = self.used(quota)
            selector = make_selector(ScopeRequirement(*each) for each in quota.scopes)
            for dimension, hard in quota.hard.items():
                resource = RESOURCES[DIMENSIONS.index(dimension)]
                charged = sum(
                    dict(pod.api_charge).get(resource, 0)
                    for pod in self.known.values()
                    if quota_reference.takes(quota, pod)
                )
                tightest = min(hard, found.get((selector, resource), (hard,))[0])
                found[selector, resource] = tightest, getattr(used, dimension), charged
        return dict(found)

    def quotas_of(self, namespace: str) -> list[Written]:
        return [quota for quota in self.quotas.values() if quota.namespace == namespace]

    def used(self, quota: Written, without: str = "") -> Amounts:
        """Return the charge of the pods that a quota counts, without one of them."""
        pods = self.booked.values()
        return _sum([self.charge(pod) for pod in pods if pod.uid != without and quota_reference.takes(quota, pod)])

    def charge(self, pod: Pod) -> Amounts:
        """Return what the reference charges for a pod; computed once per object."""
        known = self._charges.get(pod.uid)
        if known is None or known[0] is not pod:
            known = self._charges[pod.uid] = pod, quota_reference.charge(pod)
        return known[1]

    def code(self, pod: Pod, name: str) -> Code | None:
        """Return why the reference refuses a node; None if it does not."""
        if not pod.asks:
            return None
        quotas = [quota for quota in self.quotas_of(pod.namespace) if quota_reference.takes(quota, pod)]
        used = {quota.name: self.used(quota, pod.uid) for quota in quotas}
        if quota_reference.passed(quotas, used, pod):
            return Code.QUOTA_EXCEEDED
        on = [other for other in self.booked.values() if other.node == name and other.uid != pod.uid]
        state, left = reference_state.node_state(self.nodes[name], on), quota_reference.memory_left(quotas, used, pod)
        if left is not None:
            return quota_reference.code_within(state, pod, left)
        found = reference.fit(state, pod)
        return found if isinstance(found, Code) else None


def node_of(name: str, sizes: tuple[int, ...]) -> Node:
    return Node(name, tuple(Device(f"GPU-{name}-{i}", i, 8, size, 100, "A", 0) for i, size in enumerate(sizes)))


def _sum(parts: list[Amounts]) -> Amounts:
    return Amounts(*(sum(part[at] for part in parts) for at in range(3)))


# -- the driver --------------------------------------------------------------------------------------------------------


def run(events: int, seed: int, check_every: int, progress: Callable[[int], object] | None = None) -> Summary:
    """Send that many events; what namespaces are charged is compared after each, everything after `check_every`."""
    driver = Driver(seed)
    summary = drive(driver, seed, events, check_every, progress)
    summary.by_kind.update({f"verdict {code}": count for code, count in driver.verdicts.items()})
    return summary


class Driver(Chance):
    """Draws events. Each method shows one to the world and returns the namespace concerned."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = World()
        self.serial = 0
        self.verdicts: Counter[str] = Counter()
        self.kinds = {
            self.create: 12,
            self.schedule: 26,
            self.see_stranger: 3,
            self.confirm: 16,
            self.change: 20,
            self.end: 15,
            self.edit_quota: 8,
        }

    def step(self) -> str:
        kind = self.kind(self.kinds)
        grows = kind in (self.create, self.see_stranger)
        if grows and len(self.world.known) > MOST_PODS:
            kind = self.end
        if not self.world.known and kind != self.edit_quota:
            kind = self.create
        self.world.check((kind(),))
        return kind.__name__

    def check(self) -> None:
        self.world.check()

    def pods(self) -> int:
        return len(self.world.known)

    def some(self, pods: Mapping[str, Pod]) -> Pod:
        return pods[self.random.choice(list(pods))]

    # -- events -----------------------------------------------------------------------------------------------------

    def create(self) -> str:
        pod = self.new_pod()
        self.world.see(pod)
        return pod.namespace

    def schedule(self) -> str:
        """A pod is judged on one node, placed there and assumed; a booked one is judged again."""
        world, name = self.world, self.random.choice(list(SIZES))
        pod = self.some(world.known)._replace(node=None, allocation=None)
        booked = world.booked.get(pod.uid)
        if booked is not None and self.chance(4):
            pod = pod._replace(scope=self.scope())
        cache, quota = world.cluster.cache, world.cluster.quota_check(pod)
        snapshot = cache.snapshot()
        verdict = filter_nodes(snapshot, pod, snapshot.rows_of([name]), cache.own_row(pod.uid), quota)
        have, want = None if verdict.feasible[0] else CODES[int(verdict.codes[0])], world.code(pod, name)
        self.verdicts[want or "fits"] += 1
        self.verdicts["within a budget"] += quota.budget is not None and want is None
        self.verdicts["beyond a budget"] += quota.budget is not None and want is Code.QUOTA_EXCEEDED
        if have is Code.SEARCH_LIMIT:
            self.verdicts[have] += 1
        else:
            same(f"{pod} on {name}", have, want)
        if booked is not None:
            return pod.namespace
        placed = world.cluster.placed(pod, name)
        if have is not Code.SEARCH_LIMIT:
            same(f"{pod} placed on {name}", isinstance(placed, Placement), want is None)
        if isinstance(placed, Placement) and pod.asks:
            world.assume(pod._replace(node=name, allocation=placed.allocation))
        return pod.namespace

    def see_stranger(self) -> str:
        """A pod that something else has bound, whatever the quota says."""
        pod = self.new_pod()._replace(node=self.random.choice(list(SIZES)))
        pod = pod._replace(allocation=self.allocation(pod))
        self.world.see(pod)
        return pod.namespace

    def confirm(self) -> str:
        """The next step of a bind: accepted, refused, seen, or seen too early as still pending."""
        if not self.world.booked:
            return self.create()
        pod = self.some(self.world.booked)
        kind = self.random.randrange(8)
        for _ in range(2 if self.chance(10) else 1):
            if kind < 3:
                self.world.finish(pod.uid)
            elif kind == 3:
                self.world.forget(pod.uid)
            else:
                self.world.see(pod._replace(node=None, allocation=None) if kind == 4 else pod)
        return pod.namespace

    def change(self) -> str:
        """Inits end or run again; a deadline is set."""
        world = self.world
        pod = self.some(world.known)
        booked = world.booked.get(pod.uid)
        if self.chance(8):
            pod = pod._replace(scope=pod.scope._replace(terminating=True))
        elif booked is not None and world.states[pod.uid] is PodState.ADDED:
            pod = booked._replace(inits_over=not booked.inits_over)
        for _ in range(2 if self.chance(10) else 1):
            world.see(pod)
        return pod.namespace

    def end(self) -> str:
        """A pod succeeds, or its object is gone, or both; each may be shown twice."""
        pod = self.some(self.world.known)
        for _ in range(2 if self.chance(4) else 1):
            if self.chance(2):
                self.world.see(self.world.booked.get(pod.uid, pod)._replace(terminal=True))
            else:
                self.world.delete(pod.uid)
        return pod.namespace

    def edit_quota(self) -> str:
        """A quota is created, changed, shown again or deleted."""
        namespace, name = self.random.choice(NAMESPACES), self.random.choice(QUOTAS)
        known, world = self.world.quotas.get((namespace, name)), self.world
        kind = self.random.randrange(8)
        if kind < 2:
            world.remove_quota(namespace, name)
        elif kind == 2 and known is not None:
            world.put_quota(known)
        else:
            world.put_quota(self.quota(namespace, name, known))
        return namespace

    # -- objects ----------------------------------------------------------------------------------------------------

    def quota(self, namespace: str, name: str, known: Written | None) -> Written:
        """Return limits close to what is used, so that the next pod may pass them or not; a quota's scopes stay."""
        scopes = self.random.choice(SCOPES) if known is None else known.scopes
        around = self.world.used(Written(namespace, name, {}, scopes))
        more = {"slots": (-2, 0, 3, 6, 9), "memory": (-5, 1, 5, 9, 17, 25, 33, 50), "cores": (-5, 0, 50, 100, 200)}
        hard = {
            dimension: max(0, getattr(around, dimension) + self.random.choice(more[dimension]))
            for dimension in DIMENSIONS
            if not self.chance(2 if dimension != "memory" else 4)
        }
        if self.chance(10) and hard:
            hard[self.random.choice(list(hard))] = 0
        return Written(namespace, name, hard, scopes)

    def new_pod(self) -> Pod:
        self.serial += 1
        kinds = sorted(self.random.choices([*ContainerKind], k=self.random.randint(1, 4)), key=ContainerKind.APP.__eq__)
        containers = tuple(Container(f"c{i}", kind, self.request()) for i, kind in enumerate(kinds))
        asked = [each.request for each in containers if each.request is not None]
        charge = tuple((name, self.random.randrange(8)) for name in RESOURCES) if asked else ()
        return Pod(
            uid=f"u{self.serial}",
            namespace=self.random.choice(NAMESPACES),
            name=f"p{self.serial}",
            containers=containers,
            inits_over=ContainerKind.INIT not in kinds,
            api_charge=charge,
            scope=self.scope(),
        )

    def scope(self) -> PodScope:
        name = self.random.choice(("", "", "high", "low", "other"))
        return PodScope(self.chance(2), self.chance(4), name, self.chance(4))

    def request(self) -> DeviceRequest | None:
        if self.chance(6):
            return None
        count, cores = 2 if self.chance(5) else 1, 100 if self.chance(20) else self.random.choice((0, 0, 0, 5, 10))
        if self.chance(2):
            percentage = self.random.choice((10, 25, 33, 50, 100))
            return DeviceRequest(count, 0, percentage, cores, whole=percentage == 100)
        return DeviceRequest(count, self.random.randint(1, 8), 0, cores)

    def allocation(self, pod: Pod) -> Allocation:
        uuids = [f"GPU-{pod.node}-{i}" for i in range(len(SIZES[str(pod.node)]))]
        return tuple(
            tuple(
                DeviceRow(uuid, self.random.randint(1, 8), each.request.cores)
                for uuid in self.random.sample(uuids, min(each.request.count, len(uuids)))
            )
            if each.request
            else ()
            for each in pod.containers
        )
