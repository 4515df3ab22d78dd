"""Compares what a live extender says at the end of a run with the API server's objects, computed by the reference.

It exists because the extender must not judge itself. It must not use what the extender says but to compare it.
Invariant: nothing changes meanwhile, since whoever wrote has stopped.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from accounting.reference import state as reference_state
from benchmarks.http_load import Address, Connection
from extender.config import Settings
from extender.convert.node import convert_node
from extender.convert.pod import convert_pod
from extender.wire import core_v1

_SETTLE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5
_SHOWN: Final = 10

Json = dict[str, Any]


class Books(NamedTuple):
    """What is wrong; empty lists for nothing."""

    cards: int
    pods: int
    """That have a node and have not ended."""
    overcommitted: list[str]
    """Cards that hold more than they have by the API server's objects."""
    different: list[str]
    """Cards of which the extender says something else."""
    problems: list[Json]
    """What the extender's verify says, its comparison with the API server included."""

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.overcommitted or self.different or self.problems)

    def as_json(self) -> Json:
        """The fields, of long lists the beginning."""
        shown = {name: value[:_SHOWN] if isinstance(value, list) else value for name, value in self._asdict().items()}
        return shown | {"clean": self.clean}


def check(api: Address, extender: Address) -> Books:
    """Compare; the extender may take a while to see the last writes."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while not (found := _check(api, extender)).clean and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return found


def _check(api: Address, extender: Address) -> Books:
    with Connection(api) as connection:
        nodes, pods = (_objects(connection, plural) for plural in ("nodes", "pods"))
    settings = Settings()
    converted = [convert_pod(msgspec.convert(each, core_v1.Pod), settings) for each in pods]
    held = [pod for pod in converted if pod.asks or pod.allocation is not None]
    states = reference_state.cluster_state(
        (convert_node(msgspec.convert(each, core_v1.Node), settings) for each in nodes), held
    )
    with Connection(extender) as connection:
        said = _cards_said(connection)
        verify = connection.call("GET", "/api/v1/verify?fields=problems,differences").json()
    cards = {uuid: card for state in states.values() for uuid, card in state.cards.items()}
    want = {uuid: list(card.requested) for uuid, card in cards.items()}
    names = sorted(want.keys() | said.keys())
    return Books(
        len(cards),
        sum(pod.node is not None and not pod.terminal for pod in held),
        [f"{uuid}: {card.requested} of {card.capacity}" for uuid, card in cards.items() if card.overcommitted],
        [f"{uuid}: {said.get(uuid)}, not {want.get(uuid)}" for uuid in names if said.get(uuid) != want.get(uuid)],
        [*verify["problems"], *({"difference": each} for each in verify["differences"])],
    )


def _objects(connection: Connection, plural: str) -> list[Json]:
    items: list[Json] = orjson.loads(connection.call("GET", f"/api/v1/{plural}").body)["items"]
    return items


def _cards_said(connection: Connection) -> dict[str, list[int]]:
    """Return slots, memory and cores of each card, as the extender counts them."""
    found = connection.call("GET", "/api/v1/nodes").json()
    devices = (device for node in found for device in node["devices"])
    return {each["uuid"]: [each["requested"][part] for part in ("slots", "memory", "cores")] for each in devices}
