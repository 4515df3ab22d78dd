"""Plays the stories against an extender and compares its answers with the expected ones.

It exists so that the demonstration proves its numbers. It must not print or draw; it returns what happened. Invariant:
every number is read back twice, from the pod's account and from its card, and each difference is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.demo_client import Client, DemoError
from benchmarks.demo_pods import GIB, ONE_CARD, DemoPod
from benchmarks.demo_stories import GONE, PEAK, STEADY, Held, Step, Story
from benchmarks.demo_view import Moment, Use

Json = dict[str, Any]

_CARD_MIB = 24 * GIB
_UNUSED = {"slots": 0, "memory": 0, "cores": 0}


class Placed(NamedTuple):
    """How a pod came to its node."""

    node: str
    offered: int
    passed: int
    scores: dict[str, int]


class Told(NamedTuple):
    """A story as it went."""

    pod: DemoPod
    placed: Placed
    account: Json
    moments: list[Moment]


def unused_nodes(nodes: list[Json]) -> dict[str, Json]:
    """Return the nodes whose cards are large enough for the stories, where nothing is held and nothing is wrong."""
    return {
        node["node"]: node
        for node in nodes
        if node["devices"]
        and all(card["capacity"]["memory"] >= _CARD_MIB for card in node["devices"])
        and all(card["requested"] == _UNUSED and card["registered"] and not card["blocked"] for card in node["devices"])
        and all(card["healthy"] and not card["cordoned"] for card in node["devices"])
    }


def card_names(nodes: list[Json]) -> dict[str, str]:
    """Return each card's UUID -> its short name, such as "card 2"."""
    return {card["uuid"]: f"card {card['index']}" for node in nodes for card in node["devices"]}


def place(client: Client, pod: DemoPod, nodes: list[str]) -> Placed:
    """Create a pod and bring it to a node, as kube-scheduler does. Raises `DemoError` if no node takes it."""
    client.put(pod.object)
    filtered = client.filter(pod.object, nodes)
    if not filtered.passed:
        texts = sorted({*filtered.failed.values(), *filtered.unresolvable.values()})
        raise DemoError(f"pod {pod.name} fits none of {len(nodes)} unused nodes: {'; '.join(texts)}")
    scores = client.prioritize(pod.object, filtered.passed)
    # Nodes that are not listed have score 0; kube-scheduler takes one of the best.
    node = max(filtered.passed, key=lambda name: scores.get(name, 0))
    client.bind(pod.object, node)
    pod.bound_to(node)
    return Placed(node, len(nodes), len(filtered.passed), scores)


def tell(client: Client, story: Story, nodes: Mapping[str, Json]) -> Told:
    """Play a story from the pod's creation to its end."""
    pod = DemoPod(story.name, story.asks, ONE_CARD)
    placed = _bound_elsewhere(client, pod, story.cards, nodes) if story.cards else place(client, pod, list(nodes))
    account = client.pod(pod.uid)
    if account is None:
        raise DemoError(f"pod {pod.name} is bound and not listed")
    return Told(pod, placed, account, [_step(client, pod, story, step, nodes[placed.node]) for step in story.steps])


def _bound_elsewhere(client: Client, pod: DemoPod, cards: Sequence[int], nodes: Mapping[str, Json]) -> Placed:
    """Create a pod that is already on its node, with its cards in its annotation."""
    largest = max(nodes.values(), key=lambda node: (len(node["devices"]) > max(cards), _memory_mib(node)))
    pod.bound_to(largest["node"], [largest["devices"][card]["uuid"] for card in cards])
    client.put(pod.object)
    return Placed(largest["node"], 0, 0, {})


def _memory_mib(node: Json) -> int:
    memory: int = node["devices"][0]["capacity"]["memory"]
    return memory


def _step(client: Client, pod: DemoPod, story: Story, step: Step, node: Json) -> Moment:
    if step.expected == GONE:
        client.delete(pod.name)
    else:
        client.put(pod.move(step.states, step.phase))
    account = client.pod(pod.uid)
    held = {} if account is None else account["held"]
    names = card_names([node])
    uses = [Use(names[uuid], use["slots"], use["memory"]) for uuid, use in held.items()]
    moment = Moment(
        step.text,
        tuple(pod.states.values()) if account is not None else ("",) * len(pod.asks),
        tuple(sorted(uses, key=lambda use: -use.memory_mib)),
        GONE if account is None else account["state"],
    )
    expected = {PEAK: story.peak, STEADY: story.steady}.get(step.expected, ())
    return moment._replace(wrong=_wrong(moment, expected, step.expected, held, _on_cards(client, node["node"])))


def _wrong(moment: Moment, expected: Sequence[Held], state: str, held: Json, cards: Json) -> str:
    """Return what differs from the expected; empty if nothing does."""
    if [(use.slots, use.memory_mib) for use in moment.uses] != [(held.slots, held.gib * GIB) for held in expected]:
        return f"must hold {' and '.join(map(str, expected)) or 'nothing'}"
    if moment.state != state:
        return f"must be {state}"
    return "" if held == cards else f"the cards of its node say {cards}"


def _on_cards(client: Client, node: str) -> Json:
    """Return what is held on the cards of a node that no other pod uses."""
    found = next(each for each in client.nodes() if each["node"] == node)
    return {card["uuid"]: card["requested"] for card in found["devices"] if card["requested"] != _UNUSED}
