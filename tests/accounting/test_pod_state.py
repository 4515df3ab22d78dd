"""The state table of a pod's booking."""

import itertools
import re

import pytest

from accounting import pod_state
from accounting.node import Device, Node
from accounting.pod import Container, ContainerKind, DeviceRequest, DeviceRow, Pod
from accounting.pod_record import record_pod
from accounting.pod_state import BOOKED, BOOKINGS, TRANSITIONS, PodEvent, PodState
from accounting.state.cache import Cache

STATES = (None, *PodState)
#: The events that the cache gets. The others are the registry's, see tests/extender/test_registry.py.
OF_THE_CACHE = (
    PodEvent.ASSUME,
    PodEvent.FINISH,
    PodEvent.FORGET,
    PodEvent.LOSE,
    PodEvent.SEEN_BOUND,
    PodEvent.SEEN_UNBOUND,
    PodEvent.ENDED,
    PodEvent.GONE,
)


def test_every_state_knows_every_event() -> None:
    assert set(TRANSITIONS) == set(itertools.product(STATES, PodEvent))


def test_the_essay_names_every_state_and_event() -> None:
    essay = pod_state.__doc__ or ""
    for word in (*(state.name for state in PodState), *(event.value for event in PodEvent)):
        assert re.search(rf"\b{word}\b", essay), word


def test_those_who_keep_bookings_alone_see_the_same_table() -> None:
    bookings = (None, *sorted(BOOKED))
    assert set(BOOKINGS) == set(itertools.product(bookings, PodEvent))
    for (state, event), following in BOOKINGS.items():
        assert following is (TRANSITIONS[state, event] if TRANSITIONS[state, event] in BOOKED else None)
        for unbooked in (PodState.KNOWN, PodState.CLAIMED) if state is None else ():
            # Whether a pod without a booking is known changes nothing that is booked.
            assert (TRANSITIONS[unbooked, event] in BOOKED) is (following is not None)


@pytest.mark.parametrize("event", [PodEvent.ASSUME, PodEvent.FINISH, PodEvent.FORGET])
def test_what_bind_says_later_does_not_change_what_was_seen(event: PodEvent) -> None:
    assert TRANSITIONS[PodState.ADDED, event] is PodState.ADDED


def _cache_in(state: PodState | None) -> Cache:
    cache = Cache()
    cache.add_node(Node("n1", (Device("GPU-a", 0, 10, 24000, 100),)))
    if state is PodState.ADDED:
        cache.add_pod(record_pod(_pod("n1")))
    elif state is not None:
        cache.assume_pod(record_pod(_pod("n1")))
    if state is PodState.BOUND:
        cache.finish_binding("u1")
    return cache


def _pod(node: str | None, *, terminal: bool = False) -> Pod:
    container = Container("app", ContainerKind.APP, DeviceRequest(1, 8000, 0, 0))
    rows = ((DeviceRow("GPU-a", 8000, 0),),) if node else None
    return Pod("u1", "default", "p", (container,), node=node, terminal=terminal, inits_over=True, allocation=rows)


def _tell(cache: Cache, event: PodEvent) -> None:
    match event:
        case PodEvent.ASSUME:
            cache.assume_pod(record_pod(_pod("n1")))
        case PodEvent.FINISH:
            cache.finish_binding("u1")
        case PodEvent.FORGET:
            cache.forget_pod("u1")
        case PodEvent.SEEN_BOUND:
            cache.update_pod(record_pod(_pod("n1")))
        case PodEvent.SEEN_UNBOUND:
            cache.update_pod(record_pod(_pod(None)))
        case PodEvent.ENDED:
            cache.update_pod(record_pod(_pod("n1", terminal=True)))
        case PodEvent.LOSE | PodEvent.GONE:
            cache.remove_pod("u1")


@pytest.mark.parametrize("state", [None, *sorted(BOOKED)], ids=str)
@pytest.mark.parametrize("event", OF_THE_CACHE, ids=lambda event: event.value.replace(" ", "-"))
def test_the_cache_follows_the_table(state: PodState | None, event: PodEvent) -> None:
    cache = _cache_in(state)
    assert cache.state("u1") is state
    _tell(cache, event)
    after = BOOKINGS[state, event]
    assert cache.state("u1") is after
    assert cache.snapshot().requested.memory.sum() == (0 if after is None else 8000)
