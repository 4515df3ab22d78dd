"""What is known of one pod, apart from its booking.

Why it exists: 100,000 pods must fit in memory. The rows of an allocation take more room than the rest of a pod and are
rarely needed, so a pod is kept with their text in their place. It must not know other pods. Invariant: unpacking a
packed pod gives the same pod.
"""

from enum import Enum
from operator import attrgetter

from accounting.pod import Pod
from extender.cluster.podfacts import PodFacts
from extender.convert import pack_rows, unpack_rows

_lasting = attrgetter(*(name for name in Pod._fields if name not in ("inits_over", "allocation")))


class Heard(Enum):
    """Where a pod is known from. Filter's request counts only until another source shows the pod."""

    FILE = "file"
    REQUEST = "request"
    """A POST on an embedded cluster."""
    QUESTION = "question"
    """A request of filter."""
    WATCH = "watch"
    """A watch or a list."""
    READ = "read"
    BIND = "bind"
    """Our own bind, which assumed it."""


class PodEntry:
    """One pod."""

    __slots__ = ("contradicted", "facts", "heard", "pod", "rejection_at_claim", "unlisted", "version")

    def __init__(self, pod: Pod, heard: Heard) -> None:
        self.pod = pod
        """The pod as last seen, with the text of its rows in their place."""
        self.heard = heard
        self.facts: PodFacts | None = None
        """What a live cluster knows in addition; None if nothing yet."""
        self.version = ""
        """The newest resourceVersion that the API server has shown; a request may name any."""
        self.rejection_at_claim: int | None = None
        """The rejection that was known when the pod's claim was made; None without a claim."""
        self.unlisted = False
        """Whether a list has left it out since it was last seen, while its bind was in flight."""
        self.contradicted = False
        """Whether it was last seen without a node although it is booked."""

    def is_as(self, pod: Pod) -> bool:
        """Whether a pod, given with packed rows, equals the kept one apart from its inits' state."""
        kept = self.pod
        # Where rows are kept themselves, no text says which they are.
        return (kept.allocation is None or bool(kept.allocation_text)) and bool(_lasting(kept) == _lasting(pod))


def packed(pod: Pod) -> Pod:
    """Return a pod with packed rows: their text in their place. The given pod may already be packed."""
    allocation = pod.allocation
    if isinstance(allocation, tuple) and any(allocation):
        return pod._replace(allocation=None, allocation_text=pack_rows(allocation))
    return pod


def concerns_cards(pod: Pod) -> bool:
    """Whether a pod asks for or holds cards, whole devices under raw keys included."""
    return pod.concerned or bool(pod.allocation_text) or pod.allocation is not None


def waits(pod: Pod) -> bool:
    """Whether a pod asks for cards or whole devices and is on no node."""
    return pod.node is None and not pod.terminal and pod.concerned


def unpacked(pod: Pod) -> Pod:
    """Return a kept pod with its rows unpacked."""
    if not pod.allocation_text:
        return pod
    return pod.with_allocation(unpack_rows(pod.allocation_text, pod.containers, "allocation"))


def without_node(pod: Pod) -> Pod:
    """Return a pod as it was before its Binding; the pod itself if it has none."""
    if pod.node is None and pod.allocation is None and not pod.allocation_text:
        return pod
    return pod._replace(node=None, allocation=None, allocation_text="")
