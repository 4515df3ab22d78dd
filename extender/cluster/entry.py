"""What is known of one pod beside its booking.

Why it exists: 100,000 pods must fit in memory, and the rows of an allocation take more room than all the rest of a pod,
while hardly anybody asks for them, so a pod is kept with their text. It must not know other pods. Invariant: unpacking
what was packed gives the same pod.
"""

from enum import Enum
from operator import attrgetter

from accounting.pod import Pod
from extender.cluster.podfacts import PodFacts
from extender.convert import pack_rows, unpack_rows

_lasting = attrgetter(*(name for name in Pod._fields if name not in ("inits_over", "allocation")))


class Heard(Enum):
    """Who told of a pod as it is kept. Filter's question counts only as long as nobody else has told of the pod."""

    FILE = "file"
    REQUEST = "request"
    """POST on an embedded cluster."""
    QUESTION = "question"
    """Filter asked about it."""
    WATCH = "watch"
    """Or a list."""
    READ = "read"
    BIND = "bind"
    """We assumed it."""


class PodEntry:
    """One pod."""

    __slots__ = ("contradicted", "facts", "heard", "pod", "rejection_at_claim", "unlisted")

    def __init__(self, pod: Pod, heard: Heard) -> None:
        self.pod = pod
        """As it was told of, with the text of its rows in their place."""
        self.heard = heard
        self.facts: PodFacts | None = None
        """What a live cluster knows beside; None until it was told."""
        self.rejection_at_claim: int | None = None
        """The rejection that was known when the pod's claim was made; None without a claim."""
        self.unlisted = False
        """A list has left it out since it was told of last, while its bind was in flight."""
        self.contradicted = False
        """It was last told of without a node though it is booked."""

    def is_as(self, pod: Pod) -> bool:
        """Whether a pod, given with the text of its rows, is what is kept, its inits' state apart."""
        return bool(self.pod.allocation_text) and bool(_lasting(self.pod) == _lasting(pod))


def packed(pod: Pod) -> Pod:
    """Return a pod with the text of its rows in their place. It may be given like that."""
    allocation = pod.allocation
    if isinstance(allocation, tuple) and any(allocation):
        return pod._replace(allocation=None, allocation_text=pack_rows(allocation))
    return pod


def concerns_cards(pod: Pod) -> bool:
    """Whether a pod asks for or holds cards, whole devices under raw keys included."""
    return pod.concerned or bool(pod.allocation_text) or pod.allocation is not None


def unpacked(pod: Pod) -> Pod:
    """Return a kept pod with its rows."""
    if not pod.allocation_text:
        return pod
    return pod.with_allocation(unpack_rows(pod.allocation_text, pod.containers, "allocation"))


def without_node(pod: Pod) -> Pod:
    """Return a pod as it was before its Binding."""
    return pod._replace(node=None, allocation=None, allocation_text="")
