"""The embedded cluster: pods, nodes and quotas held in memory, and the cache that follows from them.

Why it exists: with a dump in place of an API server, something must remember the objects, so that bind works and a
pod's containers can be shown. It must not know HTTP. Invariants: every change reaches the cache in the same step;
objects from files and objects from requests are told apart, so that files can be read again.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from accounting.answers import (
    Claims,
    Placement,
    Verdict,
    Verdicts,
    explain_node,
    filter_nodes,
    place_beside,
    problem_counts,
    problems,
    raw_reasons,
    with_raw,
)
from accounting.holders import (
    Budgets,
    RawDevices,
    Record,
    VirtualMachineInstance,
    VmiKey,
    overcommitted_places,
)
from accounting.node import Node
from accounting.packing.scorer import Packing
from accounting.packing.workload import Workload
from accounting.pod import Pod
from accounting.pod_record import PodRecord, record_pod
from accounting.quota import Quota, QuotaCheck, QuotaTable, passed_problem
from accounting.state import Rows
from accounting.state.cache import Cache
from accounting.status import Problem, ProblemCode, Reason
from extender.cluster.arrivals import Arrivals
from extender.cluster.charges import Charges
from extender.cluster.device_classes import DeviceClasses
from extender.cluster.dra_objects import replace_dra
from extender.cluster.entry import Heard, concerns_cards, unpacked
from extender.cluster.events import Events
from extender.cluster.hold_sets import HoldSets
from extender.cluster.nominations import Nominations
from extender.cluster.objects import Objects
from extender.cluster.plugins import Plugins
from extender.cluster.rawpods import RawPods, raw_overcommitted, uncounted_keys
from extender.cluster.registry import PodRegistry
from extender.cluster.residents import Residents
from extender.cluster.resource_claims import ResourceClaims
from extender.cluster.usage import UsageLedger
from extender.config import Settings


class Cluster:
    """Objects by name and UID."""

    def __init__(
        self,
        settings: Settings,
        remembered_pods: int = 10_000,
        *,
        claims: Claims | None = None,
        deletions_are_told: bool = False,
    ) -> None:
        """`claims`: where pods that passed filter will probably go; None if no claims are kept.

        `deletions_are_told`: on a live cluster the watch reports every deletion by UID, so late news of an earlier pod
        of the same name must not end this one. Otherwise a new UID under a known name is the only sign that the old pod
        is gone, once the new pod is posted, read from a file or bound; a filter request for it is no such sign.
        """
        self.settings = settings
        self.events = Events()
        self.cache = Cache(tuple(vendor.key for vendor in settings.vendors))
        self.plugins = Plugins(self.cache, self.events)
        self.quotas = QuotaTable(*settings.vendors)
        self.arrivals = Arrivals()
        """The latest demands, from which the expected workload is learned."""
        self.registry = PodRegistry(
            self.cache,
            self.events,
            self.arrivals,
            claims,
            remembered=remembered_pods,
            deletions_are_told=deletions_are_told,
        )
        self.charges = Charges(settings, self.quotas, self.cache, self.registry)
        self.residents = Residents(self.cache, self.registry.kept_pod)
        self.nominations = Nominations(self.cache, self.residents)
        self.usage: UsageLedger | None = None
        """Usage records, if they are kept."""
        self.raw = RawDevices(derives=settings.hold_source is None, decides=settings.hold_sets)
        """Whole devices under raw keys, and which pods are launchers."""
        self._raw_pods = RawPods(settings.raw_keys, self.raw, self.cache, self.registry)
        self._raw_pods.subscribe(self.events)
        self.hold_sets = HoldSets(self.raw, self.events, decides=settings.hold_sets)
        """What is held for VMs."""
        self._follow_pods()
        self.device_classes = DeviceClasses()
        self.resource_claims = ResourceClaims(self.cache, self.events, ignores_unmapped=settings.ignore_unmapped)
        self.unseen: Callable[[], list[Problem]] = list
        """Tells which objects that may hold cards are not seen."""
        self.packing = Packing()
        self._files = Objects()
        self._changes = 0

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever an answer may change."""
        return self.cache.generation, self._changes + self.nominations.version + self.raw.version

    @property
    def list_version(self) -> tuple[int, int, int]:
        """Changes whenever a list of pods, nodes or quotas may change."""
        return *self.version, self.registry.changes

    def knows(self, uid: str) -> bool:
        """Whether a pod is known."""
        return uid in self.registry

    def pod(self, uid: str) -> Pod | None:
        """Return a pod by UID."""
        return self.registry.pod(uid)

    def pod_without_rows(self, uid: str) -> Pod | None:
        """Return a pod by UID with its rows still packed, which is quick."""
        return self.registry.kept_pod(uid)

    def pod_named(self, namespace: str, name: str) -> Pod | None:
        """Return a pod by name."""
        return self.registry.named(namespace, name)

    def pods(self) -> list[Pod]:
        """Return every pod that asks for or holds cards, by namespace, name and UID."""
        return sorted(map(unpacked, filter(concerns_cards, self.registry.kept())), key=_by_name)

    def waiting(self) -> list[Pod]:
        """Return every pod that asks for cards or whole devices and is on no node, by namespace, name and UID."""
        return sorted(filter(None, map(self.registry.kept_pod, self.registry.waiting())), key=_by_name)

    def pods_as_kept(self) -> list[Pod]:
        """Return every pod in no order, its rows still packed, which is quick; `unpacked` reads them."""
        return self.registry.kept()

    def record(self, pod: Pod, records: Mapping[str, PodRecord] | None = None) -> PodRecord:
        """Return what a pod holds: its record in the cache, else made from the pod, unbound without its annotation.

        `records`: the cache's records by UID, if those of an earlier moment are meant.
        """
        known = (self.cache.pods if records is None else records).get(pod.uid)
        return known or record_pod(pod if pod.node is not None else pod._replace(allocation=None))

    def quota_check(self, pod: Pod) -> QuotaCheck:
        """Return which limits of its namespace a pod would exceed on any node; see `Charges.check`."""
        return self.charges.check(pod)

    def filter(self, pod: Pod, rows: Rows, verdicts: Verdicts | None = None) -> Verdict:
        """Return what filter says of the rows of the cache's snapshot; -1 stands for a node that is not known.

        `verdicts`: what was said of cards before.
        """
        snapshot, own = self.cache.snapshot(), self.cache.own_row(pod.uid)
        kept = self.nominations.rows(pod)
        verdict = filter_nodes(snapshot, pod, rows, own, self.quota_check(pod), verdicts, kept)
        return with_raw(verdict, self.raw, pod, snapshot, rows) if pod.raw else verdict

    def placed(self, pod: Pod, node: str) -> Placement | tuple[Reason, ...]:
        """Return the cards that a pod gets on a node within its namespace's quotas, or why it cannot go there.

        What raw keys say comes after what the cards say, as in filter.
        """
        outcome = self._placed_on_cards(pod, node)
        return (raw_reasons(self.raw, pod, node) if isinstance(outcome, Placement) else ()) or outcome

    def _placed_on_cards(self, pod: Pod, node: str) -> Placement | tuple[Reason, ...]:
        """Return the cards that a pod gets on a node, or why it gets none.

        Cards are chosen beside what others claim there if possible, else as if there were no claims.
        """
        snapshot, quota = self.nominations.of_node(pod, node) or self.cache.snapshot(), self.quota_check(pod)
        if self.registry.claims is not None and not quota.exceeded:
            beside = place_beside(self.cache, snapshot, pod, node, self.registry.claims, quota.budget)
            if beside is not None:
                return beside
        return explain_node(snapshot, pod, node, self.cache.positions(node), quota=quota)

    def problems(self) -> list[Problem]:
        """Return all problems, those of unreadable objects included."""
        return sorted({*problems(self.cache), *self.problems_of_objects()})

    def problem_counts(self) -> dict[ProblemCode, int]:
        """Return the number of problems by code, from the arrays: quick enough for every scrape."""
        counts = problem_counts(self.cache)
        for problem in self._problems_of_objects():
            counts[problem.code] += 1
        # Who has them is not asked for.
        counts[ProblemCode.RAW_OVERCOMMITTED] += len(overcommitted_places(self.raw))
        return counts

    def problems_of_objects(self) -> list[Problem]:
        """Return what is wrong with quotas, their limits below what is used included, and with objects of files.

        Resources whose objects are not seen are problems as well.
        """
        return [*self._problems_of_objects(), *raw_overcommitted(self.raw)]

    def _problems_of_objects(self) -> list[Problem]:
        """Return all of them but over-committed whole devices, of which only the count is quick."""
        passed = map(passed_problem, self.quotas.passed(self.cache.used))
        of_whole_devices = (*uncounted_keys(self.raw), *self.hold_sets.problems())
        return [*self.quotas.problems(), *passed, *self._files.problems, *of_whole_devices, *self.unseen()]

    # -- changing -------------------------------------------------------------------------------------------------

    def load(self, files: Objects) -> None:
        """Replace the objects from files by what the files say now; pods that came by requests stay."""
        self._drop_vanished(files)
        for node in files.nodes:
            self.cache.add_node(node)
            self._raw_pods.put_node(node)
            self.resource_claims.count_again(node.name)
        for vmi in files.vmis:
            self.put_vmi(vmi)
        replace_dra(self._files.dra, files.dra, self.device_classes, self.resource_claims)
        for quota in files.quotas:
            self.quotas.put(quota)
        for budget in files.budgets:
            self.residents.budgets.put(budget)
        for pod in files.pods:
            if self._is_told_by_files(pod):
                self.registry.put(pod, Heard.FILE)
        if self.settings.hold_sets:
            # Nobody watches files, so all that there is to decide is decided here.
            for _ in self.hold_sets.full_pass():
                pass
        self._files = files
        self._changes += 1

    def put_node(self, node: Node) -> None:
        """Record a node as it is now."""
        generation = self.cache.generation
        raw_version = self.raw.version
        self.cache.update_node(self.plugins.as_counted(node))
        if self.cache.generation != generation:
            self.resource_claims.count_again(node.name)
        self._raw_pods.put_node(node)
        if self.cache.generation != generation or self.raw.version != raw_version:
            self.events.node_changed.publish(node.name)

    def remove_node(self, name: str) -> None:
        """Record that a node object is gone."""
        self.plugins.forget(name)
        self.cache.remove_node(name)
        self.raw.remove_node(name)
        self.resource_claims.count_again(name)

    def put_pod(self, pod: Pod) -> Pod:
        """Create or replace a pod; a new UID under a known name replaces the old pod. Returns the kept pod.

        A bound pod stays on its node and keeps its cards, because an API server allows no other change either.
        """
        known = self.registry.pod(pod.uid)
        if known is not None and known.node is not None:
            pod = pod._replace(node=pod.node or known.node, allocation=pod.allocation or known.allocation)
        return self.registry.put(pod, Heard.REQUEST)

    def remember(self, pod: Pod) -> None:
        """Remember a pod of a /filter request, unless it is known already."""
        self.registry.ask(pod)

    def is_from_files(self, uid: str) -> bool:
        """Whether a pod comes from files only."""
        return self.registry.is_heard_of(uid, Heard.FILE)

    def is_only_asked_about(self, uid: str) -> bool:
        """Whether a pod is known only from /filter."""
        return self.registry.is_heard_of(uid, Heard.QUESTION)

    def delete_pod(self, uid: str) -> None:
        """Forget a pod and release what it holds."""
        self.registry.forget(uid)

    def bind(self, pod: Pod) -> None:
        """Record a pod that was bound here, with its node and its cards."""
        self.registry.assume(pod)
        self.registry.finish_binding(pod.uid)
        self.registry.put(pod, Heard.BIND)

    def expect(self, workload: Workload) -> None:
        """Make policies that look ahead expect this workload from now on."""
        self.packing.use(workload)
        self._changes += 1
        self.events.workload_expected.publish(workload)

    def keep_usage(self, earlier: Iterable[Record] = (), now_ns: Callable[[], int] = time.time_ns) -> UsageLedger:
        """Keep usage records from now on, beginning with those of an earlier process."""
        self.usage = UsageLedger(self.cache, self.registry, self.raw, self.events, now_ns)
        self.usage.take_up(earlier)
        return self.usage

    def set_raw_budgets(self, budgets: Budgets) -> None:
        """Let these budgets of whole devices be in force."""
        version = self.raw.version
        self.raw.set_budgets(budgets)
        if self.raw.version != version:
            self.events.raw_budgets_changed.publish(budgets)

    def put_vmi(self, vmi: VirtualMachineInstance) -> None:
        """Record a VMI as it is now."""
        before = self.raw.vmi(vmi.key)
        if self.raw.put_vmi(vmi):
            self._vmi_changed(vmi.key, before, vmi)

    def remove_vmi(self, key: VmiKey) -> None:
        """Record that a VMI is gone."""
        before = self.raw.vmi(key)
        if self.raw.remove_vmi(key):
            self._vmi_changed(key, before, None)

    def put_quota(self, quota: Quota) -> bool:
        """Record a quota object as it is now; returns whether its limits changed, not just its status."""
        changed = self.quotas.put(quota)
        if changed:
            # The API server writes a quota's status with every pod, which frees nothing.
            self._changes += 1
            self.events.quota_changed.publish(quota.namespace)
        return changed

    def remove_quota(self, namespace: str, name: str) -> bool:
        """Record that a quota object is gone; returns whether it was known."""
        removed = self.quotas.remove(namespace, name)
        if removed:
            self._changes += 1
            self.events.quota_changed.publish(namespace)
        return removed

    def _vmi_changed(self, key: VmiKey, *states: VirtualMachineInstance | None) -> None:
        """Tell where something may have become free: where a VM runs or ran, and for whom that waits."""
        known = [state for state in states if state is not None]
        for node in sorted({state.node for state in known if state.node is not None and state.units}):
            self.events.freed.publish(node)
        waiting = (self.raw.pod(uid) for state in known for uid in state.active_pods)
        for namespace in {pod.namespace for pod in waiting if pod is not None and pod.node is None}:
            # A launcher is charged less than another pod.
            self.events.quota_changed.publish(namespace)
        listed = frozenset[str]().union(*(state.active_pods for state in known))
        self.events.machine_changed.publish(key, listed)

    def _follow_pods(self) -> None:
        """Subscribe the other stores of pods to the registry's events."""
        events, residents, nominations = self.events, self.residents, self.nominations
        events.kept.subscribe(nominations.kept)
        events.over.subscribe(lambda event: nominations.gone(event.uid))
        events.cardless.subscribe(lambda event: residents.put_cardless(event.pod))
        events.cardless_over.subscribe(lambda event: residents.remove_cardless(event.uid))

    def _is_told_by_files(self, pod: Pod) -> bool:
        """Whether a pod is taken from a file: no request has brought it, nor another pod of its name."""
        holder = self.registry.holder(pod.namespace, pod.name)
        if holder is not None and holder.pod.uid != pod.uid and holder.heard is not Heard.FILE:
            return False
        entry = self.registry.entry(pod.uid)
        return entry is None or entry.heard in (Heard.FILE, Heard.QUESTION)

    def _drop_vanished(self, files: Objects) -> None:
        uids, nodes = {pod.uid for pod in files.pods}, {node.name for node in files.nodes}
        quotas = {(quota.namespace, quota.name) for quota in files.quotas}
        for uid in sorted(self.registry.heard_of(Heard.FILE) - uids):
            self.registry.forget(uid)
        for node in self._files.nodes:
            if node.name not in nodes:
                self.remove_node(node.name)
        vmis = {vmi.key for vmi in files.vmis}
        for vmi in self._files.vmis:
            if vmi.key not in vmis:
                self.remove_vmi(vmi.key)
        budgets = {(budget.namespace, budget.name) for budget in files.budgets}
        for budget in self._files.budgets:
            if (budget.namespace, budget.name) not in budgets:
                self.residents.budgets.remove(budget.namespace, budget.name)
        for quota in self._files.quotas:
            if (quota.namespace, quota.name) not in quotas:
                self.quotas.remove(quota.namespace, quota.name)


def _by_name(pod: Pod) -> tuple[str, str, str]:
    return pod.namespace, pod.name, pod.uid
