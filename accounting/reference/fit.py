"""The slow reference of fitting and of the order of nodes, in plain Python, one card at a time.

Why it exists: tests and benchmarks compare the fast code with it. It works on the states of `reference.state` and must
not know more than that. Invariant: it tries every choice of cards, so what it does not find does not exist.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from accounting.node import Node
from accounting.pod import Allocation, ContainerKind, DeviceRequest, DeviceRow, Pod
from accounting.policy import CardKey, NodePolicy, Weights, card_keys
from accounting.reference.state import (
    ALONE,
    Amounts,
    Card,
    NodeState,
    add,
    amounts_of,
    card_holdings,
    cluster_state,
    less,
    node_state,
    requested_holding,
)
from accounting.status import Code

_LOAD_UNIT = 2**20
#: The score of one NVLink.
NVLINK = 100
_Keys = list[tuple[int, ...]]
#: Footprint and links that a policy asks for; the policy's keys; how far apart the cards are; the keys with positions.
_Order = Callable[[Sequence[Card]], tuple[tuple[int, ...], _Keys, tuple[int, ...], _Keys]]


def fit(state: NodeState, pod: Pod) -> Allocation | Code:
    """Return the rows that the pod would get on the node, or why it gets none.

    It gets the first placement in the order of preference, container by container. The reason is that of the container
    that found no cards when each before it took its best ones, however close: filter does not look at that.
    """
    code = Code.INVALID_REQUEST if pod.invalid else _node_code(state, pod) if pod.asks else None
    if code is not None:
        return code
    # Sidecars and apps first, then the inits, each in spec order.
    asking = [i for i, container in enumerate(pod.containers) if container.request is not None]
    order = sorted(asking, key=lambda i: pod.containers[i].kind is ContainerKind.INIT)
    nothing: Allocation = ((),) * len(pod.containers)
    best = _best_of_each(state, pod, nothing, order)
    if not isinstance(best, Code):
        return best
    found = _first_placement(state, pod, nothing, order)
    return found or _best_of_each(state, _without_links(pod), nothing, order, close=False)


def _without_links(pod: Pod) -> Pod:
    card = replace(pod.policies.card, linked=False)
    return pod._replace(policies=replace(pod.policies, card=card))


def _best_of_each(
    state: NodeState, pod: Pod, taken: Allocation, order: list[int], *, close: bool = True
) -> Allocation | Code:
    """Give every container the best cards that it finds; return why the first that finds none finds none.

    `close`: whether cards that are close to each other go before equal ones.
    """
    for i in order:
        sets = _sets(state, pod, taken, i)
        if isinstance(sets, Code):
            return sets
        if pod.containers[i].kind is not ContainerKind.INIT:
            key = _order(state, pod, taken, i, close=close)
            taken = _put(taken, i, _rows_on(min(sets, key=key), pod, i, key))
    return _with_inits(state, pod, taken)


def _with_inits(state: NodeState, pod: Pod, taken: Allocation) -> Allocation:
    """Give every init the cards that add least to the footprint: in spec order, or largest first if that is less."""
    inits = [i for i, each in enumerate(pod.containers) if each.kind is ContainerKind.INIT and each.request is not None]

    def size(i: int) -> tuple[int, int, int]:
        request = _request(pod, i)
        memory = max((_memory(card, request) for card in state.cards.values()), default=0)
        return -memory, -request.cores, -request.count

    ways = []
    for order in (inits, sorted(inits, key=size)):
        found = taken
        for i in order:
            sets, key = _sets(state, pod, found, i), _order(state, pod, found, i)
            if not isinstance(sets, Code):
                found = _put(found, i, _rows_on(min(sets, key=key), pod, i, key))
        ways.append(found)
    return min(ways, key=lambda found: _footprint(pod, found))


def _first_placement(state: NodeState, pod: Pod, taken: Allocation, order: list[int]) -> Allocation | None:
    """Try every choice of cards for the containers in order, the preferred ones first."""
    # Rows that come later make no room.
    found = [_sets(state, pod, taken, i) for i in order]
    if any(isinstance(sets, Code) for sets in found):
        return None
    if not order or pod.containers[order[0]].kind is ContainerKind.INIT:
        # An init's cards do not affect other containers.
        return _with_inits(state, pod, taken)
    # Card by card, so that neither links nor cards of one node or group go before others.
    i, key = order[0], _order(state, _without_links(pod), taken, order[0], close=False)
    for chosen in [] if isinstance(found[0], Code) else sorted(found[0], key=key):
        placement = _first_placement(state, pod, _put(taken, i, _rows_on(chosen, pod, i, key)), order[1:])
        if placement is not None:
            return placement
    return None


def _put(taken: Allocation, i: int, rows: tuple[DeviceRow, ...]) -> Allocation:
    return (*taken[:i], rows, *taken[i + 1 :])


def filter_nodes(nodes: Sequence[Node], pods: Sequence[Pod], pod: Pod) -> dict[str, tuple[Code | None, bool]]:
    """Return per node the code (None: it fits) and whether an empty node would not do either.

    A pod's own booking does not count.
    """
    state = cluster_state(nodes, [other for other in pods if other.uid != pod.uid])
    codes = {name: found if isinstance(found := fit(here, pod), Code) else None for name, here in state.items()}
    return {
        name: (code, code is not None and isinstance(fit(node_state(state[name].node, []), pod), Code))
        for name, code in codes.items()
    }


def _node_code(state: NodeState, pod: Pod) -> Code | None:
    if state.node is None:
        return Code.NODE_UNKNOWN
    if not state.node.devices:
        return Code.NO_DEVICES
    limit = state.node.count_allocatable
    if limit is not None and state.requested_count + requested_holding(pod).peak.slots > limit:
        return Code.INSUFFICIENT_NODE_COUNT
    return Code.ALLOCATION_UNREADABLE if state.blocked else None


def _sets(state: NodeState, pod: Pod, taken: Allocation, i: int) -> list[tuple[Card, ...]] | Code:
    """Return every set of cards that container i may take."""
    request, alive = _request(pod, i), _alive(pod, taken, i)
    cards = [card for card in state.cards.values() if not card.orphan]
    refusals = {card.position: _refusal(state, card, alive, request, pod) for card in cards}
    fitting = [card for card in cards if refusals[card.position] is None]
    sets = [
        chosen
        for chosen in (combinations(fitting, request.count) if request.count <= len(fitting) else ())
        if not _one_numa(state, pod) or len({card.device.numa for card in chosen}) == 1
    ]
    return sets or _speaking_code([found for found in refusals.values() if found], len(cards), request)


def _one_numa(state: NodeState, pod: Pod) -> bool:
    return pod.selection.numa_bind or (state.node is not None and state.node.single_numa)


def _order(state: NodeState, pod: Pod, taken: Allocation, i: int, *, close: bool = True) -> _Order:
    """Return the key of container i's sets of cards, the best one lowest; an init's leaves the smallest footprint."""
    alive, init = _alive(pod, taken, i), pod.containers[i].kind is ContainerKind.INIT

    one_numa = _one_numa(state, pod)
    found = _sets(state, pod, taken, i) if pod.policies.card.linked else []
    fitting = {} if isinstance(found, Code) else {card.device.uuid: card for cards in found for card in cards}
    preferences = {card.position: _preference(card, alive, pod, one_numa=one_numa) for card in state.cards.values()}

    def key(chosen: Sequence[Card]) -> tuple[tuple[int, ...], _Keys, tuple[int, ...], _Keys]:
        rows = tuple(_row(card, _request(pod, i)) for card in chosen)
        footprint = _footprint(pod, _put(taken, i, rows)) if init else ()
        linked = _linked(state, chosen, fitting.values()) if pod.policies.card.linked else ()
        keys = sorted(preferences[card.position] for card in chosen)
        if not close or pod.policies.card.linked:
            # Between sets that links and NUMA nodes leave equal, the policy's first card decides, then its second.
            return (*footprint, *linked), [], (), keys
        return footprint, [each[:-1] for each in keys], _apart(state, chosen), keys

    return key


def _apart(state: NodeState, chosen: Sequence[Card]) -> tuple[int, int]:
    """Return whether cards are of several NUMA nodes, and of several groups of cards that NVLinks join."""
    pairs = () if state.node is None else state.node.links
    several_numa = len({card.device.numa for card in chosen}) > 1
    if not pairs:
        return int(several_numa), 0
    joined = {chosen[0].device.uuid}
    for _ in state.cards:
        joined |= {uuid for a, b, score in pairs if score >= NVLINK and joined & {a, b} for uuid in (a, b)}
    return int(several_numa), int(any(card.device.uuid not in joined for card in chosen))


def _linked(state: NodeState, chosen: Sequence[Card], fitting: Iterable[Card]) -> tuple[int, ...]:
    """Return how little several cards are linked to each other, or how much one card is to the others that fit."""
    score = {frozenset((a, b)): score for a, b, score in (() if state.node is None else state.node.links)}

    def between(a: Card, b: Card) -> int:
        return score.get(frozenset((a.device.uuid, b.device.uuid)), 0)

    if len(chosen) == 1:
        return (sum(between(chosen[0], other) for other in fitting),)
    return -sum(between(a, b) for a, b in combinations(chosen, 2)), len({card.device.numa for card in chosen})


def _rows_on(chosen: Sequence[Card], pod: Pod, i: int, key: _Order) -> tuple[DeviceRow, ...]:
    """Return the rows in the order of preference of single cards; where links count they do not order the rows."""
    linked = pod.policies.card.linked and len(chosen) > 1
    ordered = sorted(chosen, key=lambda card: key([card])[3:] if linked else key([card]))
    return tuple(_row(card, _request(pod, i)) for card in ordered)


def _request(pod: Pod, i: int) -> DeviceRequest:
    return pod.containers[i].request or DeviceRequest(0, 0, 0, 0)


def _alive(pod: Pod, taken: Allocation, i: int) -> list[DeviceRow]:
    """Return the rows beside which container i runs; apps come after all inits."""
    return [row for j in range(i) if pod.containers[j].kind is not ContainerKind.INIT for row in taken[j]]


def _row(card: Card, request: DeviceRequest) -> DeviceRow:
    return DeviceRow(card.device.uuid, _memory(card, request), request.cores)


def _footprint(pod: Pod, taken: Allocation) -> tuple[int, int, int]:
    """Return the peak of these rows, summed over cards, in the order that decides."""
    peak = add(*(holding.peak for holding in card_holdings(pod._replace(allocation=taken)).values()))
    return peak.memory, peak.cores, peak.slots


def _memory(card: Card, request: DeviceRequest) -> int:
    if not request.memory_percentage:
        return request.memory
    if card.capacity.memory == 0:
        # It does not tell its memory: no part of it can be promised.
        return 0 if request.whole else 1
    return card.capacity.memory * request.memory_percentage // 100


def _used(card: Card, alive: Sequence[DeviceRow]) -> Amounts:
    return add(card.requested, *(amounts_of(row) for row in alive if row.uuid == card.device.uuid))


def _preference(card: Card, alive: Sequence[DeviceRow], pod: Pod, *, one_numa: bool) -> tuple[int, ...]:
    """Return the key of a card's preference, smallest first. The last number differs between any two cards."""
    used = _used(card, alive)
    load = load_of(used, card.capacity, pod.policies.weights)
    values = {
        CardKey.HIGH_LOAD: -load,
        CardKey.LOW_LOAD: load,
        CardKey.HIGH_NUMA: -card.device.numa,
        CardKey.LOW_NUMA: card.device.numa,
        CardKey.FEW_SLOTS: used.slots,
        CardKey.HIGH_INDEX: -card.device.index,
    }
    keys = card_keys(pod.policies.card, numa_bind=one_numa)
    return (*(values[key] for key in keys), -card.position)


def _refusal(
    state: NodeState, card: Card, alive: Sequence[DeviceRow], request: DeviceRequest, pod: Pod
) -> tuple[int, Code] | None:
    """Return the first check that the card fails, with its place in the list; the later, the closer it came."""
    used = _used(card, alive)
    free = less(card.capacity, used)
    own_exclusive = any(row.uuid == card.device.uuid and row.cores >= ALONE for row in alive)
    all_cores_taken = request.cores == 0 and free.cores <= 0 and card.capacity.cores != 0
    cordoned = state.node is not None and card.device.uuid in state.node.cordoned
    checks = (
        (pod.selection.accepts_type(card.device.type), Code.TYPE_MISMATCH),
        (pod.selection.accepts_mode(card.device.mode), Code.MODE_MISMATCH),
        (pod.selection.accepts_uuid(card.device.uuid), Code.UUID_MISMATCH),
        (card.device.healthy, Code.DEVICE_UNHEALTHY),
        (not cordoned, Code.DEVICE_CORDONED),
        (not card.blocked, Code.DEVICE_BLOCKED),
        (not card.overcommitted, Code.DEVICE_OVERCOMMITTED),
        (not card.exclusive and not own_exclusive, Code.EXCLUSIVE_CONFLICT),
        (free.slots >= 1, Code.INSUFFICIENT_SLOTS),
        (not pod.policies.card.mutex or used.slots == 0, Code.EXCLUSIVE_CONFLICT),
        (free.memory >= _memory(card, request), Code.INSUFFICIENT_MEMORY),
        (free.cores >= request.cores and not all_cores_taken, Code.INSUFFICIENT_CORES),
        (request.cores < ALONE or used.slots == 0, Code.EXCLUSIVE_CONFLICT),
    )
    return next(((place, code) for place, (passed, code) in enumerate(checks) if not passed), None)


def _speaking_code(refusals: list[tuple[int, Code]], cards: int, request: DeviceRequest) -> Code:
    """Return what a node says: too few cards at all, enough but on different NUMA nodes, or the closest refusal."""
    if cards < request.count:
        return Code.INSUFFICIENT_DEVICES
    return Code.NUMA_MISMATCH if cards - len(refusals) >= request.count else max(refusals)[1]


# -- loads and the order of nodes --------------------------------------------------------------------------------------


def load_of(used: Amounts, capacity: Amounts, weights: Weights) -> int:
    """Return the weighted sum of used/capacity, each floored in units of 2^-20; 0 if any capacity is 0."""
    if 0 in capacity:
        return 0
    shares = (part * _LOAD_UNIT // whole for part, whole in zip(used, capacity, strict=True))
    return sum(a * b for a, b in zip((weights.slot, weights.memory, weights.core), shares, strict=True))


def node_order(state: Mapping[str, NodeState], names: Iterable[str], policy: NodePolicy) -> list[str]:
    """Return the nodes, the preferred one first: by load, then free memory (binpack: the least), then name."""

    def key(name: str) -> tuple[int, int, str]:
        cards = [card for card in state[name].cards.values() if not card.orphan]
        used, capacity = add(*(card.requested for card in cards)), add(*(card.capacity for card in cards))
        load, free = load_of(used, capacity, Weights()), capacity.memory - used.memory
        return (-load, free, name) if policy is NodePolicy.BINPACK else (load, -free, name)

    return sorted(names, key=key)
