"""The embedded cluster: pods, nodes and quotas held in memory, and the cache that follows from them.

Why it exists: with a dump in place of an API server, something must remember the objects, so that bind works and a
pod's containers can be shown. It must not know HTTP. Invariants: every change reaches the cache in the same step;
what came from files and what came by requests are kept apart, so that files can be read again.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from accounting.answers import Claim, Claims, Placement, explain_node, place_beside, problem_counts, problems
from accounting.disruption import DisruptionBudget
from accounting.holdings import Held
from accounting.node import Node
from accounting.packing.scorer import Packing
from accounting.packing.shape import Asked
from accounting.packing.workload import Workload
from accounting.pod import Allocation, Pod, UnreadableAllocation
from accounting.pod_record import PodRecord, pod_state, record_pod
from accounting.pod_state import PodState
from accounting.quota import Quota, QuotaCheck, QuotaTable, passed_problem
from accounting.state.cache import Cache
from accounting.status import Problem, ProblemCode, Reason
from extender.cluster.charges import Charges
from extender.cluster.events import Events
from extender.cluster.nominations import Nominations
from extender.cluster.podstore import PodStore
from extender.cluster.residents import Residents
from extender.config import Settings

#: Pods from which the expected workload is learned: enough for rare large pods to show, few enough to stay current.
REMEMBERED_ARRIVALS = 10_000


@dataclass(frozen=True, slots=True)
class Objects:
    """What one reading of files gave: the objects that decode, and what was wrong with the others."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    quotas: tuple[Quota, ...] = ()
    problems: tuple[Problem, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()


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
        """`claims`: where pods that passed filter will probably go, if that is kept.

        `deletions_are_told`: on a live cluster every deletion is told by UID. Then what comes late of an earlier pod of
        the same name must not end this one. Otherwise a new UID under a known name is the only sign that the old pod is
        gone, once the new pod is posted, read from a file or bound; that somebody asks about it is no sign.
        """
        self.settings = settings
        self.events = Events()
        self.claims = claims
        self._deletions_are_told = deletions_are_told
        self.cache = Cache(tuple(vendor.key for vendor in settings.vendors))
        self.quotas = QuotaTable(*settings.vendors)
        self._pods = PodStore()
        self.charges = Charges(settings, self.quotas, self.cache, self._pods)
        self.residents = Residents(self.cache, self._pods.bare)
        self.nominations = Nominations(self.cache, self.residents)
        self._uids: dict[tuple[str, str], str] = {}  # namespace, name -> UID
        self._from_files: set[str] = set()  # UIDs of pods that only files told of
        self._seen: OrderedDict[str, None] = OrderedDict()  # UIDs of pods that only /filter told of, oldest first
        self._remembered_pods = remembered_pods
        self._files = Objects()
        self._changes = 0
        self._gone_plugins: set[tuple[str, str]] = set()  # node, vendor key
        self.packing = Packing()
        self.arrived: deque[Asked] = deque(maxlen=REMEMBERED_ARRIVALS)
        """What the pods that were told of last ask for, once each: from these the expected workload is learned."""
        self.arrivals = 0
        """How many pods were told of so far."""

    # -- asking ---------------------------------------------------------------------------------------------------

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever an answer may change."""
        return self.cache.generation, self._changes + self.nominations.version

    @property
    def list_version(self) -> tuple[int, int, int]:
        """Changes whenever a list of pods, nodes or quotas may change."""
        return *self.version, self._pods.changes

    def knows(self, uid: str) -> bool:
        """Whether a pod is known."""
        return uid in self._pods

    def pod(self, uid: str) -> Pod | None:
        """Return a pod by UID."""
        return self._pods.get(uid)

    def pod_without_rows(self, uid: str) -> Pod | None:
        """Return a pod by UID without the rows of its allocation, which is quick."""
        return self._pods.bare(uid)

    def pod_named(self, namespace: str, name: str) -> Pod | None:
        """Return a pod by name."""
        uid = self._uids.get((namespace, name))
        return None if uid is None else self._pods[uid]

    def pods(self) -> list[Pod]:
        """Return every pod that asks for or holds cards, by namespace, name and UID."""
        return sorted(self._pods.concerning_cards(), key=lambda pod: (pod.namespace, pod.name, pod.uid))

    def waiting(self) -> list[Pod]:
        """Return every pod that asks for cards and is on no node, by namespace, name and UID."""
        return sorted(self._pods.waiting(), key=lambda pod: (pod.namespace, pod.name, pod.uid))

    def pods_as_kept(self) -> list[Pod]:
        """Return every pod, in no order and its rows still a text, which is quick; `unpacked` reads them."""
        return self._pods.all_bare()

    def record(self, pod: Pod, records: Mapping[str, PodRecord] | None = None) -> PodRecord:
        """Return what a pod holds: as the cache has it, else by itself; unbound, its annotation counts nothing.

        `records`: the cache's, by UID, if those of an earlier moment are meant.
        """
        known = (self.cache.pods if records is None else records).get(pod.uid)
        return known or record_pod(pod if pod.node is not None else pod._replace(allocation=None))

    def quota_check(self, pod: Pod) -> QuotaCheck:
        """Return which limits of its namespace a pod would pass wherever it goes; see `Charges.check`."""
        return self.charges.check(pod)

    def placed(self, pod: Pod, node: str) -> Placement | tuple[Reason, ...]:
        """Return the cards that a pod gets on a node within its namespace's quotas, or why it gets none.

        What others claim there keeps its room if that can be; else it is as if nobody claimed anything.
        """
        snapshot, quota = self.nominations.of_node(pod, node) or self.cache.snapshot(), self.quota_check(pod)
        if self.claims is not None and not quota.exceeded:
            beside = place_beside(self.cache, snapshot, pod, node, self.claims, quota.budget)
            if beside is not None:
                return beside
        return explain_node(snapshot, pod, node, self.cache.positions(node), quota=quota)

    def problems(self) -> list[Problem]:
        """Return everything that is wrong, objects that could not be read included."""
        return sorted({*problems(self.cache), *self.problems_of_objects()})

    def problem_counts(self) -> dict[ProblemCode, int]:
        """Return how many problems there are by code, from the arrays: quick enough for every scrape."""
        counts = problem_counts(self.cache)
        for problem in self.problems_of_objects():
            counts[problem.code] += 1
        return counts

    def problems_of_objects(self) -> list[Problem]:
        """Return what is wrong with quotas, their limits below what is used included, and with files' objects."""
        passed = map(passed_problem, self.quotas.passed(self.cache.used))
        return [*self.quotas.problems(), *passed, *self._files.problems]

    # -- changing -------------------------------------------------------------------------------------------------

    def load(self, files: Objects) -> None:
        """Replace what came from files by what they say now; pods that came by requests stay."""
        self._drop_vanished(files)
        for node in files.nodes:
            self.cache.add_node(node)
        for quota in files.quotas:
            self.quotas.put(quota)
        for budget in files.budgets:
            self.residents.budgets.put(budget)
        for pod in files.pods:
            if self._is_told_by_files(pod):
                self._put(pod)
                self._from_files.add(pod.uid)
        self._files = files
        self._changes += 1

    def put_node(self, node: Node) -> None:
        """Record a node as it is now."""
        generation = self.cache.generation
        self.cache.update_node(self.as_counted(node))
        if self.cache.generation != generation:
            self.events.node_changed.publish(node.name)

    def remove_node(self, name: str) -> None:
        """Record that a node object is gone."""
        self._gone_plugins -= {(node, vendor) for node, vendor in self._gone_plugins if node == name}
        self.cache.remove_node(name)

    def as_counted(self, node: Node) -> Node:
        """Return a node whose cards take nothing where their vendor's plugin is gone."""
        gone = {vendor for name, vendor in self._gone_plugins if name == node.name}
        if not gone:
            return node
        return replace(
            node, devices=tuple(replace(each, gone=True) if each.vendor in gone else each for each in node.devices)
        )

    def is_plugin_gone(self, node: str, vendor: str) -> bool:
        """Whether a vendor's plugin on a node was found gone."""
        return (node, vendor) in self._gone_plugins

    def set_plugin(self, node: str, vendor: str, *, alive: bool) -> bool:
        """Note whether a vendor's plugin on a node lives; returns whether that is new."""
        if alive is not self.is_plugin_gone(node, vendor):
            return False
        self._gone_plugins ^= {(node, vendor)}
        known = self.cache.nodes[node]
        devices = tuple(replace(each, gone=not alive) if each.vendor == vendor else each for each in known.devices)
        self.cache.update_node(replace(known, devices=devices))
        self.events.plugin_changed.publish(node, vendor, alive)
        self.events.node_changed.publish(node)
        return True

    def put_pod(self, pod: Pod) -> Pod:
        """Create or replace a pod; a new UID under a known name replaces the old pod. Returns what is kept.

        A bound pod stays on its node and keeps its cards, as on an API server, where neither can be taken back.
        """
        known = self._pods.get(pod.uid)
        if known is not None and known.node is not None:
            pod = pod._replace(node=pod.node or known.node, allocation=pod.allocation or known.allocation)
        self._from_files.discard(pod.uid)
        return self._put(pod)

    def remember(self, pod: Pod) -> None:
        """Remember a pod that /filter showed, unless it is known already.

        An earlier pod of that name stays, and keeps its name: whoever may ask must not be able to free what runs.
        """
        if pod.uid in self._pods and pod.uid not in self._seen:
            return
        self._put(pod._replace(node=None, allocation=None), replaces=False)
        self._seen[pod.uid] = None
        if len(self._seen) > self._remembered_pods:
            self.delete_pod(next(iter(self._seen)))

    def is_from_files(self, uid: str) -> bool:
        """Whether only files have told of a pod."""
        return uid in self._from_files

    def is_only_asked_about(self, uid: str) -> bool:
        """Whether nothing but /filter has told of a pod yet."""
        return uid in self._seen

    def delete_pod(self, uid: str) -> None:
        """Forget a pod and release what it holds."""
        pod = self._pods.bare(uid)
        if pod is None:
            return
        del self._pods[uid]
        if self._uids.get((pod.namespace, pod.name)) == uid:
            del self._uids[pod.namespace, pod.name]
        self._seen.pop(uid, None)
        self._from_files.discard(uid)
        self.cache.remove_pod(uid)
        self.nominations.gone(uid)

    def bind(self, pod: Pod) -> None:
        """Record a pod that was bound here, with its node and its cards."""
        self.cache.assume_pod(record_pod(pod))
        self.cache.finish_binding(pod.uid)
        self._from_files.discard(pod.uid)
        self._put(pod)

    def observe_again(self, pod: Pod) -> bool:
        """Record a bound pod, given with the text of its rows, if it was observed like that before.

        At most its inits have ended or run again since. Most events are like that, and cost little here. Returns
        whether that is so.
        """
        uid = pod.uid
        if pod.node is None or self.cache.state(uid) is not PodState.ADDED:
            return False
        if self._uids.get((pod.namespace, pod.name)) != uid or not self._pods.has(pod):
            return False
        state = pod_state(pod)
        if self.cache.pods[uid].state is not state:
            self.cache.update_pod(self.cache.pods[uid].in_state(state))
            self._pods.put(pod)
        return True

    def observe(self, pod: Pod, rows: Allocation | UnreadableAllocation | Held | None = None) -> None:
        """Record a pod as an API server has it, or had it a moment ago: what is told may come late.

        `rows`: what the text of its rows says, if it is given with that text in their place; what it holds by them is
        enough.

        A pod never leaves its node, so one that was seen there and is told of without a node is told of too late. Of a
        bound pod nothing that was only assumed is kept beside what is told.
        """
        if pod.node is None and not pod.terminal and self.cache.state(pod.uid) is PodState.ADDED:
            return
        self._put(pod, rows)

    def assume(self, pod: Pod) -> None:
        """Book a pod, with its node and its cards, whose bind is being decided."""
        # From now on it is more than a pod that was asked about, which may be forgotten for lack of room.
        if pod.uid not in self._pods:
            self._pods.put(pod._replace(node=None, allocation=None))
        self._uids.setdefault((pod.namespace, pod.name), pod.uid)
        self._seen.pop(pod.uid, None)
        self.cache.assume_pod(record_pod(pod))
        self.events.assumed.publish(pod)

    def finish(self, uid: str) -> None:
        """Note that the Binding of an assumed pod was accepted."""
        self.cache.finish_binding(uid)
        self.events.finished.publish(uid)

    def forget(self, uid: str) -> None:
        """Take back a booking whose bind failed for certain."""
        booked = self.cache.pods.get(uid)
        self.cache.forget_pod(uid)
        self.events.forgotten.publish(uid)
        if booked is not None and uid not in self.cache.pods:
            self.events.freed.publish(str(booked.node))

    def refused(self, uid: str, node: str, why: str) -> None:
        """Note that a bind found no cards for a pod; it changes nothing."""
        self.events.refused.publish(uid, node, why)

    def lose(self, uid: str) -> None:
        """End the booking of a pod that the API server has without a node, though its Binding had been accepted."""
        booked, pod = self.cache.pods.get(uid), self._pods.get(uid)
        self.cache.remove_pod(uid)
        if pod is not None:
            self._pods.put(pod._replace(node=None, allocation=None))
        self.events.lost.publish(uid)
        if booked is not None:
            self.events.freed.publish(str(booked.node))

    def claim(self, uid: str, claim: Claim, now: float) -> None:
        """Note where a pod will probably go. `now`: in seconds of any steady clock."""
        if self.claims is not None:
            self.claims.put(uid, claim, now)
            self.events.claimed.publish(uid, claim)

    def end_claim(self, uid: str) -> None:
        """End a pod's claim, if it has one."""
        if self.claims is not None and self.claims.drop(uid):
            self.events.unclaimed.publish(uid)

    def expire_claims(self, now: float) -> None:
        """End the claims that are too old."""
        for uid in () if self.claims is None else self.claims.expire(now):
            self.events.unclaimed.publish(uid)

    def expect(self, workload: Workload) -> None:
        """Let policies that look ahead expect another workload from now on."""
        self.packing.use(workload)
        self._changes += 1
        self.events.workload_expected.publish(workload)

    def note_arrival(self, pod: Pod) -> None:
        """Remember what a pod asks for that is told of for the first time."""
        self.arrived.append(Asked(pod.containers, pod.cpu_milli, pod.selection))
        self.arrivals += 1

    def put_cardless_pod(self, pod: Pod) -> None:
        """Count the CPU of a bound pod that neither asks for nor holds cards; nothing else is kept of it."""
        if pod.uid not in self.cache.cardless_pods:
            self.note_arrival(pod)
        self.cache.put_cardless_pod(pod.uid, str(pod.node), pod.cpu_milli)
        self.residents.put_cardless(pod)

    def remove_cardless_pod(self, uid: str) -> None:
        """Record that such a pod has ended or is gone."""
        self.cache.remove_cardless_pod(uid)
        self.residents.remove_cardless(uid)

    def put_quota(self, quota: Quota) -> bool:
        """Record a quota object as it is now; returns whether its limits changed, as opposed to its status."""
        changed = self.quotas.put(quota)
        if changed:
            # The API server writes a quota's status with every pod; that frees nothing.
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

    def _put(
        self, pod: Pod, rows: Allocation | UnreadableAllocation | Held | None = None, *, replaces: bool = True
    ) -> Pod:
        """Record a pod; returns what is kept. `rows`: as for `observe`. `replaces`: it takes over its name."""
        earlier = self._uids.get((pod.namespace, pod.name))
        if earlier is not None and earlier != pod.uid and replaces and not self._deletions_are_told:
            self.delete_pod(earlier)
        known = self._pods.bare(pod.uid)
        if known is not None and known.key != pod.key and self._uids.get((known.namespace, known.name)) == pod.uid:
            del self._uids[known.namespace, known.name]
        if known is None and not pod.invalid:
            self.note_arrival(pod)
        record = record_pod(pod, rows)
        if self._deletions_are_told:
            record = self._beside_earlier_reading(record)
        self.cache.add_pod(record)
        if known is not None and not record.readable and self.cache.pods.get(pod.uid, record).readable:
            # The cache keeps the cards of the last allocation that could be read; show the same rows.
            pod = pod._replace(containers=known.containers).with_allocation(self._pods[pod.uid].allocation)
        elif (
            rows is not None
            and not isinstance(rows, Held)
            and (isinstance(rows, UnreadableAllocation) or not any(rows))
        ):
            # No text gives these back.
            pod = pod.with_allocation(rows)
        self._pods.put(pod)
        self.nominations.told(known, pod)
        if replaces or earlier is None:
            self._uids[pod.namespace, pod.name] = pod.uid
        self._seen.pop(pod.uid, None)
        return pod

    def _beside_earlier_reading(self, record: PodRecord) -> PodRecord:
        """Return what counts of a bound pod whose allocation may have been edited since it was read before."""
        known, state = self.cache.pods.get(record.uid), self.cache.state(record.uid)
        # What was only assumed is no reading: the pod's own annotation goes before it.
        if known is None or state is PodState.ASSUMED or known.node != record.node:
            return record
        return record.edited_after(known) if known.readable and record.readable else record

    def _is_told_by_files(self, pod: Pod) -> bool:
        """Whether what a file says of a pod stands: no request has told of it, nor of another one of its name."""
        earlier = self._uids.get((pod.namespace, pod.name), pod.uid)
        if earlier != pod.uid and earlier not in self._from_files:
            return False
        return pod.uid not in self._pods or pod.uid in self._from_files or pod.uid in self._seen

    def _drop_vanished(self, files: Objects) -> None:
        uids, nodes = {pod.uid for pod in files.pods}, {node.name for node in files.nodes}
        quotas = {(quota.namespace, quota.name) for quota in files.quotas}
        for uid in sorted(self._from_files - uids):
            self.delete_pod(uid)
        for node in self._files.nodes:
            if node.name not in nodes:
                self.cache.remove_node(node.name)
        budgets = {(budget.namespace, budget.name) for budget in files.budgets}
        for budget in self._files.budgets:
            if (budget.namespace, budget.name) not in budgets:
                self.residents.budgets.remove(budget.namespace, budget.name)
        for quota in self._files.quotas:
            if (quota.namespace, quota.name) not in quotas:
                self.quotas.remove(quota.namespace, quota.name)
