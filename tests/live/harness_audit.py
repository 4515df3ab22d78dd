"""Computes every card from the API server's objects, at every write.

It exists because a check at the end misses a card that was over-committed in between, and because the extender must not
judge itself. It must read the extender's state only to compare it. Invariant: after each write the node concerned is
computed anew by the reference.
"""

import msgspec

from accounting.node import Node
from accounting.pod import Pod
from accounting.reference import state as reference_state
from accounting.reference.state import Amounts
from benchmarks.random_events import expected_numbers, numbers
from extender.cluster.cluster import Cluster
from extender.config import Settings
from extender.convert.node import convert_node
from extender.convert.pod import convert_pod
from extender.wire import core_v1
from tests.apiserver.history import Event
from tests.apiserver.resources import NODES, PODS, Resource
from tests.apiserver.server import ApiServer
from tests.apiserver.stored import Stored


class Audit:
    """Listens to the API server."""

    def __init__(self, api: ApiServer, settings: Settings | None = None) -> None:
        self.overcommitted: list[str] = []
        """Every card that was over-committed after some write, as text."""
        self.events = 0
        self._api = api
        self._settings = settings or Settings()
        self._pods: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._version = 0
        for row in api.store.tables[NODES].rows:
            self._take_node(row)
        for row in api.store.tables[PODS].rows:
            self._take_pod(row)
        self._version = api.store.version
        self._stop = [api.store.listen(PODS, self._written), api.store.listen(NODES, self._written)]

    def close(self) -> None:
        """Stop listening."""
        for stop in self._stop:
            stop()

    def holding(self) -> dict[str, Amounts]:
        """Return what is held by card UUID, where anything is."""
        cards = [card for state in self._states().values() for card in state.cards.items()]
        return {uuid: card.requested for uuid, card in cards if any(card.requested)}

    def bound(self) -> dict[str, str]:
        """Return the node of every bound pod that has not ended, by pod name."""
        return {pod.name: pod.node for pod in self._pods.values() if pod.node is not None and not pod.terminal}

    def uuids(self, name: str) -> list[str]:
        """Return the cards that a pod's annotation names, sorted."""
        pod = next(pod for pod in self._pods.values() if pod.name == name)
        rows = pod.allocation if isinstance(pod.allocation, tuple) else ()
        return sorted({row.uuid for own in rows for row in own})

    def difference(self, cluster: Cluster) -> str | None:
        """Return the first difference between the extender's counts and the objects; None if there is none."""
        cache, states = cluster.cache, self._states()
        if cache.node_names() != sorted(states):
            return f"nodes: the extender has {cache.node_names()}, the objects {sorted(states)}"
        snapshot = cache.snapshot()
        for name, state in sorted(states.items()):
            have, want = numbers(cache, snapshot, name), expected_numbers(state)
            if have != want:
                return f"node {name}: the extender has {have}, the objects {want}"
        booked = {uid: record.node for uid, record in cache.pods.items()}
        on = {uid: pod.node for uid, pod in self._pods.items() if pod.node and not pod.terminal and _counts(pod)}
        return None if booked == on else f"pods: the extender has {booked}, the objects {on}"

    def _states(self) -> dict[str, reference_state.NodeState]:
        pods = [pod for pod in self._pods.values() if _counts(pod)]
        return reference_state.cluster_state(self._nodes.values(), pods)

    # -- listening ------------------------------------------------------------------------------------------------

    def _written(self) -> None:
        events = [event for resource in (NODES, PODS) for event in self._since(resource)]
        for event in sorted(events, key=lambda event: event.version):
            self._version = event.version
            self._take(event)

    def _since(self, resource: Resource) -> list[Event]:
        return list(self._api.store.tables[resource].history.after(self._version))

    def _take(self, event: Event) -> None:
        self.events += 1
        row, gone = event.row, event.type == "DELETED"
        if row.namespace:
            node = self._pods.pop(row.uid).node if gone else self._take_pod(row).node
        else:
            node = row.name
            if gone:
                self._nodes.pop(node, None)
            else:
                self._take_node(row)
        if node is not None:
            self._look_at(node, event)

    def _look_at(self, node: str, event: Event) -> None:
        pods = [pod for pod in self._pods.values() if pod.node == node and not pod.terminal]
        for uuid, card in reference_state.node_state(self._nodes.get(node), pods).cards.items():
            if card.overcommitted and not card.orphan:
                text = f"{node} {uuid} holds {card.requested} of {card.capacity}"
                self.overcommitted.append(f"version {event.version}, {event.type} {event.row.key}: {text}")

    def _take_pod(self, row: Stored) -> Pod:
        try:
            wire = msgspec.json.decode(row.body, type=core_v1.Pod)
        except msgspec.ValidationError:
            wire = core_v1.Pod(core_v1.ObjectMeta(row.name, row.namespace, row.uid))
        self._pods[row.uid] = convert_pod(wire, self._settings)
        return self._pods[row.uid]

    def _take_node(self, row: Stored) -> None:
        self._nodes[row.name] = convert_node(msgspec.json.decode(row.body, type=core_v1.Node), self._settings)


def _counts(pod: Pod) -> bool:
    """Whether a pod concerns cards at all."""
    return pod.asks or pod.allocation is not None
