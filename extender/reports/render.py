"""The JSON of the commands and the API.

Why it exists: `account`, `explain`, `verify` and /api/v1 promise exact keys, which are made only here. It must not
compute anything that accounting can. Invariant: plain dicts of strings, integers, booleans and lists, in a full order.
"""

from collections.abc import Iterable
from typing import Any

from accounting.answers import DeviceReport, Placement, RawReport
from accounting.holders import Claim, ClaimHolding, KeptSet
from accounting.holdings import DeviceUse, Total
from accounting.pod import Allocation, Container, DeviceRow, Pod, UnreadableAllocation, is_ambiguous
from accounting.pod_record import PodRecord, State
from accounting.quota import Charge, Limit
from accounting.status import Problem, Reason

Json = dict[str, Any]


def account(pod: Pod, record: PodRecord) -> Json:
    """Return what a pod holds, per container, per card and in total."""
    allocation = None if isinstance(pod.allocation, UnreadableAllocation) else pod.allocation
    rows: Allocation = tuple(() for _ in pod.containers) if allocation is None else allocation
    return {
        "pod": pod.key,
        "uid": pod.uid,
        "state": record.state.value,
        "containers": [
            {
                "name": container.name,
                "kind": container.kind.value,
                "devices": [_row(row) for row in own],
            }
            # Rows that belong to no certain container come after all containers.
            for container, own in zip(pod.containers, rows, strict=False)
        ],
        **_of_no_container(pod.containers, rows),
        "peak": _uses(record.peak),
        "steady": _uses(record.steady),
        "held": _uses(record.held),
        "total": {
            "peak": _total(record.total_peak),
            "steady": _total(record.total_steady),
            "uncertain": _uncertain(pod.containers) if allocation is None else [],
            **_by_vendor(record),
        },
        **({} if record.problem is None else {"problem": problem(record.problem)}),
    }


def _of_no_container(containers: tuple[Container, ...], rows: Allocation) -> Json:
    """Return the rows that belong to no certain container, if there are any."""
    return {"devices": [_row(row) for row in rows[-1]]} if is_ambiguous(rows, containers) else {}


def _row(row: DeviceRow) -> Json:
    shown: Json = {"uuid": row.uuid, "memory": row.memory, "cores": row.cores}
    return shown if row.instance is None else shown | {"instance": row.instance._asdict()}


def _by_vendor(record: PodRecord) -> Json:
    """Return the totals by vendor of a pod with cards of several vendors."""
    if not record.several:
        return {}
    return {
        "vendors": {vendor: {"peak": _total(peak), "steady": _total(steady)} for vendor, peak, steady in record.several}
    }


def pod_entry(pod: Pod, record: PodRecord) -> Json:
    """Return an entry of /api/v1/pods: the account and the node. An unbound pod holds nothing."""
    bound = pod.node is not None
    entry = account(pod if bound else pod._replace(allocation=None), record)
    if not bound:
        entry["state"] = State.RELEASED.value
    entry["node"] = pod.node
    entry["api_charge"] = dict(pod.api_charge)
    if pod.invalid:
        entry["invalid"] = [str(invalid) for invalid in pod.invalid]
    if pod.ignored:
        entry["ignored"] = [str(ignored) for ignored in pod.ignored]
    return entry


def claim_entry(claim: Claim, holding: ClaimHolding) -> Json:
    """Return an entry of /api/v1/claims."""
    return {
        "claim": claim.key,
        "uid": claim.uid,
        "cards": [
            {
                "node": each.node,
                "uuid": each.use.uuid,
                "slots": each.use.slots,
                "memory": each.use.memory,
                "cores": each.use.cores,
                "closed": each.closed,
            }
            for each in holding.cards
        ],
        "unmapped": [{"node": node, **found._asdict()} for node, found in holding.unmapped],
    }


def hold_entry(kept: KeptSet) -> Json:
    """Return an entry of /api/v1/holds: what is held for one VM. Its state is null while it is not gathered yet."""
    return {
        "vmi": "/".join(kept.vmi),
        "kind": "hold" if any(hold.name for hold in kept.holds) else "vmi",
        "state": None if kept.state is None else kept.state.value,
        "nodes": list(kept.nodes),
        "holds": [
            {
                "name": hold.name or None,
                "raw_key": hold.key,
                "units": hold.units,
                "node": hold.node,
                "state": hold.state.value,
            }
            for hold in kept.holds
        ],
    }


def device(report: DeviceReport) -> Json:
    """Return one card as verify and /api/v1/nodes show it."""
    card = report.device
    return {
        "node": report.node,
        "uuid": report.uuid,
        "capacity": report.capacity._asdict(),
        "requested": report.requested._asdict(),
        "free": report.free._asdict(),
        "overcommitted": report.overcommitted,
        "blocked": [code.value for code in report.blocked],
        "pods": list(report.pods),
        "holders": card_holders(report),
        "registered": card is not None,
        "healthy": card is not None and card.healthy and not card.gone,
        "cordoned": report.cordoned,
        "exclusive": report.exclusive,
        "index": None if card is None else card.index,
        "numa": None if card is None else card.numa,
        "type": None if card is None else card.type,
        "mode": None if card is None else card.mode,
        "vendor": None if card is None else card.vendor,
        "reserved_memory": 0 if card is None else card.reserved_memory,
    }


def card_holders(report: DeviceReport) -> list[Json]:
    """Return who holds a part of a card, and how much: pods, then claims of dynamic resource allocation."""
    return [
        {"kind": kind, "name": name, "slots": use.slots, "memory": use.memory, "cores": use.cores}
        for kind, holders in (("pod", report.holders), ("claim", report.claims))
        for name, use in holders
    ]


def node_devices(node: str, reports: list[DeviceReport], raw: Iterable[RawReport] | None) -> Json:
    """Return an entry of /api/v1/nodes. `raw`: None where no raw key is counted."""
    entry: Json = {"node": node, "devices": [device(report) for report in reports]}
    return entry if raw is None else entry | {"raw": [raw_use(each) for each in raw]}


def raw_use(report: RawReport) -> Json:
    """Return whole devices of one key on one node."""
    return {
        "key": report.key,
        "allocatable": report.allocatable,
        "used": report.used,
        "free": report.free,
        "overcommitted": report.free < 0,
        "holders": [each._asdict() for each in report.holders],
    }


def raw_entry(report: RawReport) -> Json:
    """Return the same as verify shows it."""
    return {"node": report.node, **raw_use(report)}


def problem(found: Problem) -> Json:
    """Return a problem as verify shows it."""
    return {"code": found.code.value, "object": found.object, "message": found.message}


def quota_row(limit: Limit, used: int, charge: int) -> Json:
    """Return an entry of /api/v1/quotas."""
    return {
        "namespace": limit.namespace,
        "resource": limit.resource,
        "hard": limit.hard,
        "used": used,
        "api_charge": charge,
        "quota": limit.quota,
        "scopes": [str(requirement) for requirement in limit.selector],
        "enforced_by_api": limit.enforced_by_api,
        "exceeded": used > limit.hard,
    }


def charge_row(charge: Charge, why: list[str]) -> Json:
    """Return what an explanation adds to an entry of /api/v1/quotas. `why`: why used and charged amounts differ."""
    return {
        "adds": charge.adds,
        "at_least": charge.at_least,
        "api_adds": charge.api_adds,
        "differs": [*charge.differs, *why],
    }


def explained_node(node: str, outcome: Placement | tuple[Reason, ...], score: int) -> Json:
    """Return one node of an explanation."""
    if isinstance(outcome, Placement):
        return {"node": node, "fits": True, "devices": _uses(outcome.peak), "score": score}
    return {
        "node": node,
        "fits": False,
        "reasons": [
            {"code": reason.code.value, "message": reason.message, "devices": list(reason.devices)}
            for reason in outcome
        ],
    }


def _uses(uses: tuple[DeviceUse, ...]) -> Json:
    return {use.uuid: {"slots": use.slots, "memory": use.memory, "cores": use.cores} for use in uses}


def _total(total: Total) -> Json:
    return total._asdict()


def _uncertain(containers: tuple[Container, ...]) -> list[str]:
    """Return the memory that is unknown until a card is chosen."""
    return [
        f"{'whole card' if request.whole else 'percentage'} in container {container.name}"
        for container in containers
        for request in container.requests
        if request.memory_percentage
    ]
