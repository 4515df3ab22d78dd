"""Scheduling policies: which node and which card is preferred.

Why it exists: HAMi's policy words and weights become values here, so that fitting and scoring only see keys to order
by. It must not see a card or a node. Invariant: together with a device's position the card keys are a full order.
Source: HAMi v2.10 gpu_policy.go and node_policy.go. HAMi sorts ascending and takes from the end; here every key says
which value is preferred, which is the same order read from the other side.
"""

import re
from dataclasses import dataclass, field
from enum import Enum

from accounting.status import Invalid


class NodePolicy(Enum):
    """Which node is preferred: the fullest (binpack), the emptiest (spread), or one that `packing` looks ahead for."""

    BINPACK = "binpack"
    SPREAD = "spread"
    FGD = "fgd"
    FRAGMENTATION = "fragmentation"

    @property
    def looks_ahead(self) -> bool:
        """Whether a node's value comes from the expected workload; see `packing`."""
        return self in (NodePolicy.FGD, NodePolicy.FRAGMENTATION)


class CardKey(Enum):
    """One key of the order of cards; the preferred end is in its name."""

    HIGH_LOAD = "binpack"
    LOW_LOAD = "spread"
    HIGH_NUMA = "numa"
    LOW_NUMA = "low numa"
    FEW_SLOTS = "mutex"
    HIGH_INDEX = "index"


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the three dimensions in a card's load."""

    slot: int = 1
    core: int = 1
    memory: int = 1


@dataclass(frozen=True, slots=True)
class CardPolicy:
    """Keys in order of importance, and whether only cards without any slot used may be taken."""

    keys: tuple[CardKey, ...] = (CardKey.LOW_LOAD,)
    mutex: bool = False
    chained: bool = False
    """A comma list or the word numa: its keys end in the index instead of the NUMA node."""
    linked: bool = False
    """topology-aware: the links between cards go before the keys; see `linked`."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies that hold for one pod."""

    node: NodePolicy = NodePolicy.BINPACK
    card: CardPolicy = field(default_factory=CardPolicy)
    weights: Weights = field(default_factory=Weights)


# At most 18 digits: Python refuses to convert very long texts.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
#: A weighted load, in units of 2^-20 of a card and packed with a card's position, must fit in 64 bits.
_WEIGHT_MAX = 2**31 - 1
_NODE_POLICIES = {policy.value: policy for policy in NodePolicy}
_SORT_KEYS = {"binpack": CardKey.HIGH_LOAD, "spread": CardKey.LOW_LOAD, "numa": CardKey.HIGH_NUMA}
_CARD_WORDS = frozenset({*_SORT_KEYS, "mutex", "topology-aware"})


def parse_node_policy(text: str) -> NodePolicy:
    """Read a node policy by its name. Anything else is binpack; a pod's annotation with such a text is not read."""
    return _NODE_POLICIES.get(text.strip(), NodePolicy.BINPACK)


def make_policies(node: str, card: str | None) -> Policies:
    """Read both policies. Without a card policy it is spread, as in HAMi; packing takes the fullest card (binpack)."""
    node_policy = parse_node_policy(node)
    if card is None:
        card = "binpack" if node_policy.looks_ahead else "spread"
    return Policies(node_policy, parse_card_policy(card))


def parse_card_policy(text: str) -> CardPolicy:
    """Read hami.io/gpu-scheduler-policy: one word or a comma list of binpack, spread, numa and mutex.

    No sort key means spread, as in HAMi, and so do unknown words; a pod's annotation with those is not read.
    "topology-aware" is no sort key: the links
    between cards decide first, and the keys between equals.
    """
    words = [word.strip() for word in text.split(",")]
    mutex, linked = "mutex" in words, "topology-aware" in words
    if words == ["mutex"]:
        return CardPolicy((CardKey.FEW_SLOTS,), mutex=True)
    keys = tuple(_SORT_KEYS[word] for word in words if word in _SORT_KEYS) or (CardKey.LOW_LOAD,)
    return CardPolicy(keys, mutex=mutex, chained=len(words) > 1 or words == ["numa"], linked=linked)


def unknown_node_words(text: str) -> tuple[str, ...]:
    """Return what in a node policy means nothing; empty for a policy's name."""
    return () if text.strip() in {policy.value for policy in NodePolicy} else (text.strip(),)


def unknown_card_words(text: str) -> tuple[str, ...]:
    """Return the words of a card policy that mean nothing."""
    words = (word.strip() for word in text.split(","))
    return tuple(word for word in words if word not in _CARD_WORDS)


def card_keys(policy: CardPolicy, *, numa_bind: bool) -> tuple[CardKey, ...]:
    """Return the keys by which cards are preferred, most important first; ties go to the highest position.

    With numa-bind the NUMA node leads: the lowest under a single "binpack", else the highest.
    """
    keys = policy.keys
    if policy.chained:
        if numa_bind and keys[0] is not CardKey.HIGH_NUMA:
            keys = (CardKey.HIGH_NUMA, *(key for key in keys if key is not CardKey.HIGH_NUMA))
        return (*keys, CardKey.HIGH_INDEX)
    if not numa_bind or keys == (CardKey.FEW_SLOTS,):
        return keys
    return (CardKey.LOW_NUMA if keys == (CardKey.HIGH_LOAD,) else CardKey.HIGH_NUMA, *keys)


def parse_weights(text: str, field_name: str) -> Weights | Invalid:
    """Read hami.io/device-scoring-weights, e.g. "slot=1,core=1,memory=3": each key once, integers, one positive."""
    weights: dict[str, int] = {}
    for entry in text.split(","):
        key, equals, number = (part.strip() for part in entry.partition("="))
        if not equals or key not in {"slot", "core", "memory"} or key in weights:
            return Invalid(field_name, text, "must hold slot=, core= and memory=, each once")
        if not _INTEGER.fullmatch(number):
            return Invalid(field_name, text, f'"{key}" weight must be an integer')
        weights[key] = int(number)
        if weights[key] < 0:
            return Invalid(field_name, text, f'"{key}" weight must not be negative')
        if weights[key] > _WEIGHT_MAX:
            return Invalid(field_name, text, f'"{key}" weight must not exceed {_WEIGHT_MAX}')
    if len(weights) != 3 or not any(weights.values()):  # noqa: PLR2004 - the three dimensions
        return Invalid(field_name, text, "must hold slot=, core= and memory=, at least one of them positive")
    return Weights(**weights)
