"""What the containers of a pod ask for, as JSON.

It must not know what pods hold. Invariant: one entry per container, init containers first, in spec order.
"""

from collections.abc import Iterable

from accounting.pod import Container, DeviceRequest
from extender.reports.shapes import AskedCards, Asks


def asks(containers: Iterable[Container]) -> list[Asks]:
    """Return what each container asks for; `requests` is empty if it asks for no card."""
    return [
        {"name": each.name, "kind": each.kind.value, "requests": [_request(request) for request in each.requests]}
        for each in containers
    ]


def request_text(request: AskedCards) -> str:
    """Return a request in a few words: "2 cards, 4000 MiB and 10 cores each"."""
    memory = f"{request['memory_percentage']}% of the memory" if request["memory_percentage"] else ""
    memory = memory or ("the whole memory" if request["whole"] else f"{request['memory']} MiB")
    cores = f" and {request['cores']} cores" if request["cores"] else ""
    count = request["count"]
    return f"{count} {'card' if count == 1 else 'cards'}, {memory}{cores}{'' if count == 1 else ' each'}"


def _request(request: DeviceRequest) -> AskedCards:
    whole = request.whole or request.memory_percentage == _WHOLE_PERCENT
    return {
        "vendor": request.vendor,
        "count": request.count,
        "memory": 0 if request.memory_percentage else request.memory,
        "memory_percentage": 0 if whole else request.memory_percentage,
        "whole": whole,
        "cores": request.cores,
    }


_WHOLE_PERCENT = 100
