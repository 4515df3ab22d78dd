"""Comparing a request with the cards of the cluster before any of them is chosen.

Why it exists: a pod that no node can ever take would stay Pending for ever, so its author is warned; and a percentage
needs at least its part of the smallest card. It must not choose cards. Invariant: without known cards there is no
warning.
"""

from collections.abc import Iterator
from dataclasses import replace

from accounting.pod import Container, DeviceRequest, Pod
from accounting.state.cache import Cache

_WHOLE_PERCENT = 100


def too_large(cache: Cache, pod: Pod) -> Iterator[str]:
    """Yield a warning per container that asks for more memory than the largest card has, or more cards than a node.

    This is no reason to deny, because a larger node may be added.
    """
    nodes = cache.snapshot().nodes
    if not nodes.present.any():
        return
    largest, most = int(nodes.memory.max()), int(nodes.present.sum(axis=0).max())
    for container in pod.containers:
        for request in container.requests:
            if request.memory > largest:
                yield f"container {container.name}: {request.memory} MiB: the largest card has {largest} MiB"
            if request.count > most:
                yield f"container {container.name}: {request.count} cards: no node has more than {most}"


def on_smallest_cards(cache: Cache, pod: Pod) -> Pod | None:
    """Return the pod with percentages and whole cards as memory of the smallest card; None if it has neither."""
    if not any(request.memory_percentage for each in pod.containers for request in each.requests):
        return None
    nodes = cache.snapshot().nodes
    if not nodes.present.any():
        return None
    smallest = int(nodes.memory[nodes.present].min())
    return pod._replace(containers=tuple(_resolved(each, smallest) for each in pod.containers))


def _resolved(container: Container, card_mib: int) -> Container:
    request = None if container.request is None else _on_card(container.request, card_mib)
    further = tuple(_on_card(each, card_mib) for each in container.further_requests)
    return replace(container, request=request, further_requests=further)


def _on_card(request: DeviceRequest, card_mib: int) -> DeviceRequest:
    if not request.memory_percentage:
        return request
    # Never 0, so that a limit of 0 refuses it.
    memory = max(1, card_mib * request.memory_percentage // _WHOLE_PERCENT)
    return request._replace(memory=memory, memory_percentage=0, whole=False)
