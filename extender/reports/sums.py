"""Sums over the cluster: over all cards, per model, per namespace.

It must not list pods or cards. Invariants: the sums are those of the lists; sums over all pods are made in steps of a
few milliseconds, so that a server can answer others in between.
"""

from collections.abc import Collection, Iterator

import numpy as np

from accounting.holders import ANY_NAMESPACE
from accounting.holdings import DeviceUse, Total
from accounting.state import BoolArray, Snapshot, untracked
from extender import __version__
from extender.cluster import Cluster
from extender.reports.render import quota_row
from extender.reports.shapes import HolderCounts, ModelSums, NamespaceUse, QuotaEntry, Summary, Sums, Uses

_PODS_PER_STEP = 200


def summary_in_steps(cluster: Cluster) -> Iterator[Summary | None]:
    """Yield the cluster's summary as the last step; its parts are of the moments at which they are made."""
    cache, holders = cluster.cache, holder_counts(cluster)
    yield None
    problems = cluster.problem_counts()
    yield None
    snapshot = cache.snapshot()
    nodes, pods, present = len(cache.nodes), len(cache.pods), snapshot.nodes.present
    waiting = len(cluster.registry.waiting())
    totals, types = _sums(snapshot, present), snapshot.type_ids
    yield None
    models: list[ModelSums] = []
    for model, number in sorted(types):
        models.append({"model": model, **_sums(snapshot, present & (snapshot.nodes.type_id == number))})
        yield None
    yield {
        "version": __version__,
        "nodes": nodes,
        "pods": pods,
        "holders": holders,
        "waiting": waiting,
        "totals": totals,
        "models": models,
        "problems": {code.value: count for code, count in problems.items()},
    }


def holder_counts(cluster: Cluster) -> HolderCounts:
    """Return how many hold cards or whole devices, by kind. A launcher of a VM is not counted beside its VM."""
    raw, records = cluster.raw, cluster.cache.pods
    pods, launcher_of = len(records), raw.launcher_of
    for each in raw.pods():
        record = records.get(each.uid)
        if launcher_of(each.namespace, each.uid) is None:
            pods += each.node is not None and record is None
        else:
            pods -= record is not None and not record.held
    vmis = holds = 0
    for kept in raw.holds().values():
        # Most VMs have one hold; a set for each would take most of the time.
        names: Collection[str] = {hold.name for hold in kept if hold.node is not None} if len(kept) > 1 else ()
        if len(kept) == 1 and kept[0].node is not None:
            names = (kept[0].name,)
        if names:
            vmis += "" in names
            holds += len(names) - ("" in names)
    return {"pod": pods, "claim": len(cluster.resource_claims), "vmi": vmis, "hold": holds}


def _sums(snapshot: Snapshot, cards: BoolArray) -> Sums:
    nodes, requested = snapshot.nodes, snapshot.requested

    def over(slots: object, memory: object, cores: object) -> Uses:
        slot_sum, memory_sum, core_sum = (int(np.asarray(each)[cards].sum()) for each in (slots, memory, cores))
        return {"slots": slot_sum, "memory": memory_sum, "cores": core_sum}

    return {
        "cards": int(np.count_nonzero(cards)),
        "capacity": over(nodes.slots, nodes.memory, nodes.cores),
        "requested": over(requested.slots, requested.memory, requested.cores),
    }


class Usage:
    """The sums of every namespace, made in steps."""

    def __init__(self, cluster: Cluster, namespace: str | None = None) -> None:
        self._cluster = cluster
        self._only = namespace
        self._found: dict[str, NamespaceUse] = {}
        self._cards: dict[str, dict[str, None]] = {}  # namespace -> its cards; of texts only, see `untracked`
        self._claimed: dict[str, dict[str, None]] = {}

    def steps(self) -> Iterator[None]:
        """Add up in steps; the sum is complete at the end."""
        cluster = self._cluster
        names = {self._only} if self._only is not None else set(cluster.quotas.namespaces())
        for name in names:
            self._entry(name)
        # What is added up has to be of one moment, and a copy that is looked through by nobody else is quick.
        for count, record in enumerate(untracked(cluster.cache.pods.values())):
            if count % _PODS_PER_STEP == 0:
                yield
            if not record.held or self._only not in (None, record.namespace):
                continue
            entry, total = self._entry(record.namespace), record.held_total
            entry["pods"] += 1
            for use in record.held:
                self._cards[record.namespace][f"{record.node} {use.uuid}"] = None
                _add(entry["held"], use)
            _charge(entry, total)
        yield from self._claims()
        yield from self._raw()

    def _claims(self) -> Iterator[None]:
        """Add what claims hold of cards that their node registers."""
        known = self._cluster.cache.card_size
        for count, (claim, holding) in enumerate(self._cluster.resource_claims.held()):
            if count % _PODS_PER_STEP == 0:
                yield
            cards = [each for each in holding.cards if known(each.node, each.use.uuid) is not None]
            if not cards or self._only not in (None, claim.namespace):
                continue
            claims = self._entry(claim.namespace)["claims"]
            claims["claims"] += 1
            for card in cards:
                self._claimed[claim.namespace][f"{card.node} {card.use.uuid}"] = None
                _add(claims["held"], card.use)

    def _raw(self) -> Iterator[None]:
        """Add the whole devices of namespaces that have some, or a budget for some."""
        raw = self._cluster.raw
        users = [each.namespace for each in raw.pods() if each.node is not None] + [
            each.namespace for each in raw.holds()
        ]
        named = [namespace for namespace, _ in raw.budgets() if namespace != ANY_NAMESPACE]
        keys = sorted({*raw.advertised(), *(key for _, key in raw.units.on_nodes())})
        yield
        for namespace in {*users, *named} if keys else ():
            if self._only in (None, namespace):
                self._entry(namespace)["raw"] = [
                    {"key": key, "used": raw.units.used_in(namespace, key), "hard": raw.hard(namespace, key)}
                    for key in keys
                    if raw.units.used_in(namespace, key) or (namespace, key) in raw.budgets()
                ]
        yield

    def rows(self) -> list[NamespaceUse]:
        """Return one entry per namespace, by name."""
        for name, entry in self._found.items():
            entry["cards"], entry["claims"]["cards"] = len(self._cards[name]), len(self._claimed[name])
        return [self._found[name] for name in sorted(self._found)]

    def _entry(self, namespace: str) -> NamespaceUse:
        known = self._found.get(namespace)
        if known is not None:
            return known
        cluster = self._cluster
        quotas: list[QuotaEntry] = [
            quota_row(limit, cluster.charges.used(limit), cluster.charges.by_api(limit))  # type: ignore[misc]
            for limit in cluster.quotas.limits_of(namespace)
        ]
        self._cards[namespace], self._claimed[namespace] = {}, {}
        self._found[namespace] = {
            "namespace": namespace,
            "pods": 0,
            "cards": 0,
            "held": {"slots": 0, "memory": 0, "cores": 0},
            "charged": {"count": 0, "memory": 0, "cores": 0},
            "quotas": quotas,
            "claims": {"claims": 0, "cards": 0, "held": {"slots": 0, "memory": 0, "cores": 0}},
            "raw": [],
        }
        return self._found[namespace]


def _add(held: Uses, use: DeviceUse) -> None:
    held["slots"] += use.slots
    held["memory"] += use.memory
    held["cores"] += use.cores


def _charge(entry: NamespaceUse, total: Total) -> None:
    charged = entry["charged"]
    charged["count"] += total.count
    charged["memory"] += total.memory
    charged["cores"] += total.cores


def usage(cluster: Cluster, namespace: str | None = None) -> list[NamespaceUse]:
    """Return what namespaces hold and are charged for, without steps."""
    counted = Usage(cluster, namespace)
    for _ in counted.steps():
        pass
    return counted.rows()
