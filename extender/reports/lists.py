"""The long lists of /api/v1, made step by step from the state of one moment.

Why it exists: with 5,000 nodes and 36,000 pods a list takes seconds to make, and kube-scheduler must not wait for that.
Every step here is short, so that the caller can let others run in between. It must not know HTTP. Invariants: the list
shows the state of one moment, before its first entry; a None among the entries is a step without an entry.
"""

from collections.abc import Callable, Generator, Iterator
from heapq import merge, nsmallest
from operator import attrgetter
from typing import Any, TypeVar

from accounting.answers import DeviceReport, FoundProblems, node_report, raw_reports_in_steps
from accounting.holders import Claim, ClaimHolding, KeptSet, RawDevices
from accounting.pod import Pod
from accounting.state import Dump, name_order, untracked
from accounting.status import Problem
from extender.cluster import Cluster, KeptPod, concerns_cards, unpacked, waits
from extender.reports import render

Json = dict[str, Any]
HeldClaim = tuple[Claim, ClaimHolding]
Entries = Iterator[Json | None]
PlacedEntries = Iterator[tuple[list[str], Json] | None]
T = TypeVar("T")
#: The number of values sorted per step, which takes a millisecond or two.
_SORTED_AT_ONCE = 1000
_problem_order = attrgetter("code", "object", "message")


def node_entries(cluster: Cluster) -> Entries:
    """Yield the entries of /api/v1/nodes, by name."""
    raw = (yield from raw_reports_in_steps(cluster.raw)) if cluster.settings.raw_keys else None
    dump = cluster.cache.dump()
    for name in dump.names:
        yield render.node_devices(name, node_report(dump, name), None if raw is None else raw.get(name, ()))


def pod_entries(cluster: Cluster, wanted: Callable[[Pod], bool] = concerns_cards) -> Entries:
    """Yield the entries of /api/v1/pods, by namespace, name and UID. `wanted`: selects pods, given with packed rows."""
    found: Iterator[KeptPod] = yield from _kept_in_order(cluster, wanted)
    for pod, record in found:
        yield render.pod_entry(unpacked(pod), record or cluster.record(pod, {}))


def _kept_in_order(cluster: Cluster, wanted: Callable[[Pod], bool]) -> Generator[None, None, Iterator[KeptPod]]:
    """Return the wanted ones of the pods of this moment, sorted; all of that in steps."""
    moment, uids, runs = cluster.registry.moment(), untracked(cluster.registry.uids), []
    for first in range(0, len(uids), _SORTED_AT_ONCE):
        looked_at = map(moment.look, uids[first : first + _SORTED_AT_ONCE])
        found = sorted((each for each in looked_at if each is not None and wanted(each[0])), key=_pod_order)
        # Pods and records lie there anyway, pairs of them would be 100,000 more objects to look through.
        pods, records = untracked([pod for pod, _ in found]), untracked([record for _, record in found])
        runs.append(zip(pods, records, strict=True))
        yield None
    return merge(*runs, key=_pod_order)


def first_waiting(cluster: Cluster, most: int) -> Generator[None, None, list[Pod]]:
    """Return the first pods that wait, by namespace, name and UID, in steps."""
    uids, found = untracked(cluster.registry.waiting()), list[Pod]()
    for first in range(0, len(uids), _SORTED_AT_ONCE):
        kept = map(cluster.pod_without_rows, uids[first : first + _SORTED_AT_ONCE])
        found = nsmallest(most, [*found, *(pod for pod in kept if pod is not None and waits(pod))], key=name_order)
        yield None
    return found


def claim_entries(cluster: Cluster, node: str | None = None, namespace: str | None = None) -> Entries:
    """Yield the entries of /api/v1/claims, by namespace, name and UID. `node`, `namespace`: only theirs."""
    found: Iterator[HeldClaim] = yield from in_order(cluster.resource_claims.held(), _claim_order)
    for claim, holding in found:
        nodes = {each.node for each in holding.cards} | {name for name, _ in holding.unmapped}
        is_wanted = namespace in (None, claim.namespace) and (node is None or node in nodes)
        yield render.claim_entry(claim, holding) if is_wanted else None


def hold_entries(cluster: Cluster, node: str | None = None, namespace: str | None = None) -> Entries:
    """Yield the entries of /api/v1/holds, by namespace and name of the VM. `node`, `namespace`: only theirs."""
    found: Iterator[KeptSet] = yield from in_order(cluster.hold_sets.held(), attrgetter("vmi"))
    for kept in found:
        is_wanted = namespace in (None, kept.vmi.namespace) and (node is None or node in kept.nodes)
        yield render.hold_entry(kept) if is_wanted else None


class VerifyLists:
    """The lists of verify. The devices must be taken to their end before the problems.

    A card's place is its node and its number there, that of whole devices is node and key, a problem's are its texts.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._raw_devices = cluster.raw if cluster.settings.raw_keys else None
        self._dump: Dump = cluster.cache.dump()
        self._found = FoundProblems(self._dump)
        self._of_objects = cluster.problems_of_objects()

    def by_name(self) -> Iterator[tuple[str, Entries]]:
        """Yield the lists with their names in verify, in the order in which they must be taken."""
        for name, entries in self.in_places():
            yield name, (each and each[1] for each in entries)

    def in_places(self) -> Iterator[tuple[str, PlacedEntries]]:
        """Yield the same with the place of each entry in its list."""
        yield "devices", self._devices()
        if self._raw_devices is not None:
            yield "raw", self._raw(self._raw_devices)
        yield "problems", self._problems()

    def _devices(self) -> PlacedEntries:
        """Yield every card, by node."""
        for name in self._dump.names:
            for number, report in enumerate(self._reports(name)):
                yield [name, f"{number:06}"], render.device(report)

    def _raw(self, devices: RawDevices) -> PlacedEntries:
        """Yield whole devices, by node and key."""
        found = yield from raw_reports_in_steps(devices)
        for node in sorted(found):
            for report in found[node]:
                yield [node, report.key], render.raw_entry(report)

    def _problems(self) -> PlacedEntries:
        """Yield everything that is wrong, sorted."""
        found = list({*self._found.all(), *self._of_objects})
        ordered: Iterator[Problem] = yield from in_order(found, _problem_order)
        for problem in ordered:
            yield [problem.code.value, problem.object, problem.message], render.problem(problem)

    def _reports(self, node: str) -> list[DeviceReport]:
        reports = node_report(self._dump, node)
        self._found.see_node(self._dump.node_state(node).node)
        for report in reports:
            self._found.see_card(report)
        return reports


def _pod_order(pair: KeptPod) -> tuple[str, str, str]:
    pod = pair[0]
    return pod.namespace, pod.name, pod.uid


def _claim_order(pair: HeldClaim) -> tuple[str, str, str]:
    return pair[0].namespace, pair[0].name, pair[0].uid


def in_order(values: list[T], key: Callable[[T], Any]) -> Generator[None, None, Iterator[T]]:
    """Return the values sorted; the sorting is done in steps."""
    runs = []
    for start in range(0, len(values), _SORTED_AT_ONCE):
        runs.append(untracked(sorted(values[start : start + _SORTED_AT_ONCE], key=key)))
        yield None
    return merge(*runs, key=key)
