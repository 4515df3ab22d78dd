"""Budgets of whole devices at the time when pods and VMs are created.

Why it exists: who asks for more than its namespace may have should be told at once, and not find its pod pending. It
must not decide which pod is a launcher: the cluster's one classifier does. Invariants: at its creation no pod is listed
by a VMI yet, so what virt-controller itself creates is left to filter, which asks again once it is listed; who created
an object is what the API server says, never what the object says.
"""

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from accounting.answers import raw_request
from accounting.holders import OverBudget, VirtualMachineInstance
from accounting.pod import Pod
from extender.admission.decision import Finding, Why
from extender.cluster import Cluster
from extender.convert import convert_vmi
from extender.wire import admission_v1 as wire
from extender.wire import kubevirt_v1
from extender.wire.unreadable import UNREADABLE, why_unreadable

_decoder = msgspec.json.Decoder(kubevirt_v1.VirtualMachineInstance)


def over_budgets(cluster: Cluster, pod: Pod) -> Iterator[Finding]:
    """Yield a finding per budget that a pod would pass."""
    if pod.raw and not pod.invalid:
        yield from map(_finding, cluster.raw.over_budget(raw_request(pod)))


def vmi_over_budgets(cluster: Cluster, request: wire.Request) -> Iterator[Finding]:
    """Yield a finding per budget that the devices of a new VMI would pass. Raises `wire.ObjectError`."""
    try:
        vmi = convert_vmi(_decoder.decode(request.object), cluster.settings)
    except UNREADABLE as error:
        raise wire.ObjectError(f"request.object: {why_unreadable(error)}") from None
    yield from map(_finding, cluster.raw.vmi_over_budget(_in_namespace(vmi, request.namespace)))


def _in_namespace(vmi: VirtualMachineInstance, namespace: str | None) -> VirtualMachineInstance:
    return replace(vmi, namespace=namespace or vmi.namespace)


def _finding(over: OverBudget) -> Finding:
    return Finding(Why.QUOTA_EXCEEDED, str(over))
