"""The two webhooks over a cluster: which checks a request gets, from request to decision.

Why it exists: each webhook is one synchronous function, so that nothing can change between reading the state and
answering, and no answer waits for the API server, which is waiting for it. It must not know HTTP. Invariant: answering
changes only the counters.

| request                           | what is judged                                                           |
|-----------------------------------|--------------------------------------------------------------------------|
| CREATE pods                       | everything; of a mirror pod nothing: its containers run already          |
| UPDATE pods, pods/status          | the scheduler's annotations and label                                    |
| CREATE pods/binding, bindings     | the same: the API server merges a Binding's annotations into the pod     |
| UPDATE pods/ephemeralcontainers   | a new privileged container in a pod with a share                         |
| CREATE virtualmachineinstances    | the budgets of whole devices                                             |
| anything else                     | nothing: neither resources nor annotations can be written there          |
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from accounting.pod import Pod
from extender.admission import validating
from extender.admission.capacity import on_smallest_cards, too_large
from extender.admission.decision import Decision, Finding, Why, denied
from extender.admission.misplaced import misplaced
from extender.admission.mutating import mutate, scheduler_is_ours
from extender.admission.owned import changed_keys, written_keys
from extender.admission.raw import over_budgets, vmi_over_budgets
from extender.admission.settings import AdmissionSettings, NearMiss, managed_vendors
from extender.admission.written_resources import Written, containers
from extender.cluster import Cluster
from extender.convert import convert_without_rows, misnamed
from extender.wire import admission_v1 as wire
from extender.wire import core_v1

_NULL = b"null"
_NOT_SYNCED = Finding(
    Why.NOT_SYNCED, "gpu-extender has not read the cluster's pods and quotas yet; try again in some seconds"
)


class Outcome(NamedTuple):
    """The labels by which a decision is counted."""

    webhook: str
    decision: str
    why: str
    dry_run: bool


class Admission:
    """The webhooks of one cluster."""

    def __init__(
        self, cluster: Cluster, settings: AdmissionSettings | None = None, is_synced: Callable[[], bool] = lambda: True
    ) -> None:
        self.cluster = cluster
        self.settings = settings or AdmissionSettings()
        self.is_synced = is_synced
        """Whether the cluster has been read, so that quotas can be checked."""
        self.counts: Counter[Outcome] = Counter()
        self._vendors = managed_vendors(cluster.settings)

    def mutate(self, request: wire.Request) -> Decision:
        """Return what /mutate adds to a pod. Raises `wire.ObjectError`."""
        if _what(request) != ("CREATE", "pods"):
            return Decision(Why.NOT_CONCERNED)
        pod = _pod(request.object, "request.object")
        if validating.is_mirror(pod, request.groups) or not any(self._asks(each) for each in containers(pod)):
            return Decision(Why.NOT_CONCERNED)
        if not scheduler_is_ours(pod, self.settings):
            return Decision(Why.OTHER_SCHEDULER)
        operations = mutate(pod, self._vendors, self.settings)
        return Decision(Why.MUTATED if operations else Why.UNCHANGED, patch=operations)

    def validate(self, request: wire.Request) -> Decision:
        """Return whether a write is allowed. Raises `wire.ObjectError`."""
        match _what(request):
            case "CREATE", "pods":
                return self._created(request)
            case "CREATE", "virtualmachineinstances.kubevirt.io":
                return self._machine_created(request)
            case "UPDATE", "pods" | "pods/status":
                return self._updated(request)
            case "CREATE", "pods/binding" | "bindings":
                return self._bound(request)
            case "UPDATE", "pods/ephemeralcontainers":
                return self._debugged(request)
        return Decision(Why.NOT_CONCERNED)

    # -- pods that are created ------------------------------------------------------------------------------------

    def _created(self, request: wire.Request) -> Decision:
        pod = _pod(request.object, "request.object")
        if validating.is_mirror(pod, request.groups):
            return Decision(Why.NOT_CONCERNED)
        written = list(containers(pod))
        asks = any(map(self._asks, written))
        named = self._misspelt(pod, written, asks=asks)
        told = {finding for finding in named if finding.only_told or self.settings.near_miss is NearMiss.WARN}
        findings = [] if self._is_trusted(request) else list(written_keys(pod.meta, self._vendors))
        findings += [finding for finding in named if finding not in told]
        warnings = [finding.text for finding in named if finding in told]
        why = Why.NOT_CONCERNED
        if asks:
            why = Why.ADMITTED if scheduler_is_ours(pod, self.settings) else Why.OTHER_SCHEDULER
            findings += self._judge_share(request, pod, written)
            warnings += self._warnings(request, pod, written)
        elif self.cluster.settings.raw_keys:
            why, of_raw = self._judge_raw(request, pod)
            findings += of_raw
        return denied(findings, warnings) if findings else Decision(why, warnings=tuple(warnings))

    def _misspelt(self, pod: wire.PodObject, written: list[Written], *, asks: bool) -> list[Finding]:
        """Return the findings on misspelt names."""
        near = (validating.near_misses(each, self._vendors, self._is_advertised) for each in written)
        resources = (found for findings in near for found in findings)
        return [*resources, *misplaced(pod.meta.annotations or {}, self._vendors, asks=asks)]

    def _judge_share(self, request: wire.Request, pod: wire.PodObject, written: list[Written]) -> list[Finding]:
        share = self._share(request, pod)
        findings = [*validating.invalid_values(share)]
        for each in written:
            for vendor in self._vendors:
                findings += validating.ambiguous(each, vendor)
        findings += validating.scheduler(pod, self.settings)
        if scheduler_is_ours(pod, self.settings):
            if not self._is_trusted(request):
                findings += validating.node_preset(pod)
            findings += validating.privileged(written, [], share, self.settings)
        return findings or self._judge_quota(share) or self._judge_raw(request, pod)[1]

    def _judge_raw(self, request: wire.Request, pod: wire.PodObject) -> tuple[Why, list[Finding]]:
        """Return whether a pod wants whole devices, and the budgets that it would pass, whoever schedules it."""
        share = self._share(request, pod)
        if not share.raw:
            return Why.NOT_CONCERNED, list(validating.invalid_values(share))
        if not self.is_synced():
            return Why.NOT_SYNCED, [_NOT_SYNCED]
        # Its UID is the API server's, so a VMI that lists it, lists this pod.
        own = share._replace(uid=(pod.meta.uid or share.uid))
        launched = request.user in self.settings.launcher_accounts
        return Why.ADMITTED, [] if launched else list(over_budgets(self.cluster, own))

    def _machine_created(self, request: wire.Request) -> Decision:
        if not self.cluster.settings.raw_keys:
            return Decision(Why.NOT_CONCERNED)
        if not self.is_synced():
            return denied([_NOT_SYNCED])
        findings = list(vmi_over_budgets(self.cluster, request))
        return denied(findings) if findings else Decision(Why.ADMITTED)

    def _judge_quota(self, share: Pod) -> list[Finding]:
        if not self.is_synced():
            return [_NOT_SYNCED]
        on_smallest = on_smallest_cards(self.cluster.cache, share)
        if on_smallest is None:
            return list(validating.quotas(self.cluster.quota_check(share).exceeded))
        memory = {vendor.memory_resource for vendor in self._vendors}
        exceeded = self.cluster.quota_check(on_smallest).exceeded
        return list(validating.quotas(each._replace(at_least=each.resource in memory) for each in exceeded))

    def _warnings(self, request: wire.Request, pod: wire.PodObject, written: list[Written]) -> list[str]:
        found = list(validating.oddities(written, pod, self._vendors))
        share = self._share(request, pod)
        found += map(str, share.ignored)
        if not scheduler_is_ours(pod, self.settings):
            name, ours = pod.more.schedulerName, self.settings.scheduler_name
            why = f"gives out no shares of cards; only {ours} does, so the pod's GPU limits are not enforced here"
            found.append(f"spec.schedulerName: {name}: {why}")
        elif self.is_synced():
            found += too_large(self.cluster.cache, share)
        return found

    def _share(self, request: wire.Request, pod: wire.PodObject) -> Pod:
        """Return the pod as accounting uses it, in the request's namespace, with a UID that no known pod has."""
        read = convert_without_rows(pod.pod, self.cluster.settings)
        return read._replace(
            namespace=request.namespace or read.namespace,
            uid=f"admission {request.uid}",
            node=None,
            invalid=(*misnamed(pod.meta), *read.invalid),
        )

    # -- what comes later -----------------------------------------------------------------------------------------

    def _updated(self, request: wire.Request) -> Decision:
        old = _meta(request.oldObject, "request.oldObject")
        new = _meta(request.object, "request.object")
        return self._unless_trusted(request, list(changed_keys(old, new, self._vendors)))

    def _bound(self, request: wire.Request) -> Decision:
        return self._unless_trusted(request, list(written_keys(_meta(request.object, "request.object"), self._vendors)))

    def _debugged(self, request: wire.Request) -> Decision:
        old, pod = _pod(request.oldObject, "request.oldObject"), _pod(request.object, "request.object")
        known = {each.name for each in old.more.ephemeralContainers or ()}
        fields = [
            f"spec.ephemeralContainers[{each.name}].securityContext.privileged"
            for each in pod.more.ephemeralContainers or ()
            if each.name not in known and each.securityContext is not None and each.securityContext.privileged
        ]
        if not fields or not scheduler_is_ours(pod, self.settings):
            return Decision(Why.NOT_CONCERNED)
        findings = list(validating.privileged([], fields, self._share(request, pod), self.settings))
        return denied(findings) if findings else Decision(Why.NOT_CONCERNED)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _unless_trusted(self, request: wire.Request, findings: list[Finding]) -> Decision:
        if not findings:
            return Decision(Why.NOT_CONCERNED)
        return Decision(Why.TRUSTED_ACCOUNT) if self._is_trusted(request) else denied(findings)

    def _is_trusted(self, request: wire.Request) -> bool:
        return request.user in self.settings.trusted_accounts

    def _is_advertised(self, name: str) -> bool:
        """Whether some node or DeviceClass has this name; asked only about names close to managed ones."""
        if name in self.cluster.settings.raw_keys or self.cluster.device_classes.maps(name):
            return True
        return any(name in node.resource_names for node in self.cluster.cache.nodes.values())

    def _asks(self, written: Written) -> bool:
        return any(map(written.asks_of, self._vendors))


def _what(request: wire.Request) -> tuple[str, str]:
    """Return the operation and the resource with its group; pods of other groups do not count as pods."""
    group = request.resource.group if request.resource is not None else None
    return request.operation or "", f"{request.target}.{group}" if group else request.target


def _pod(raw: msgspec.Raw, field: str) -> wire.PodObject:
    if bytes(raw) == _NULL:
        raise wire.ObjectError(f"{field}: null: the request has no pod")
    return wire.decode_pod(raw, field)


def _meta(raw: msgspec.Raw, field: str) -> core_v1.ObjectMeta:
    if bytes(raw) == _NULL:
        raise wire.ObjectError(f"{field}: null: the request has no object")
    return wire.decode_meta(raw, field)
