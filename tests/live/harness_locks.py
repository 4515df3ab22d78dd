"""Node locks and pods that wait for them.

It exists so that a test of the lock shows only who takes it and when. It must not decide whether a lock is stale.
Invariant: the lock is what the node's annotation says.
"""

from datetime import UTC, datetime, timedelta

from accounting.vendors import HYGON
from extender.config import Settings
from extender.convert.annotations import NODE_LOCK
from tests.extender.objects import Json, asks, container, node, pod
from tests.live.harness import Bench

BINDING = "pods/binding"
#: An extender that also knows Hygon's cards.
TWO_VENDORS = Settings(further_vendors=(HYGON,))


def lock_of(bench: Bench, name: str = "n1") -> str | None:
    """Return the pod that holds a node's lock."""
    text = (bench.kube.node(name)["metadata"].get("annotations") or {}).get(NODE_LOCK)
    return None if text is None else ",".join(text.split(",")[1:])


def lock_time(seconds_ago: float) -> str:
    """Return a time as a lock has it."""
    return (datetime.now(UTC) - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def lock_text(seconds_ago: float, owner: str = "default,other") -> str:
    """A lock as HAMi writes it."""
    return f"{lock_time(seconds_ago)},{owner}"


def locked(text: str, name: str = "n1", cards: int = 1) -> Json:
    """A node with a lock."""
    return node(name, cards, annotations={NODE_LOCK: text})


def small(name: str) -> Json:
    """A pod that leaves room for many others."""
    return pod(name, memory=10)


async def filtered(bench: Bench, *names: str) -> list[Json]:
    """Create pods and let filter pass them."""
    made = [bench.kube.create(small(name)) for name in names]
    for each in made:
        await bench.scheduler.filter(each)
    await bench.caught_up()
    return made


def hygon_register(*, health: bool = True) -> Json:
    """The annotation of a node with one Hygon card, DCU-0."""
    return {HYGON.register_annotation: f"DCU-0,4,1000,100,Z100L,0,{str(health).lower()}:"}


def both_vendors(name: str) -> Json:
    """A pod that asks for an NVIDIA card and, in another container, for a Hygon card."""
    limits = {"hygon.com/dcunum": "1", "hygon.com/dcumem": "10", "hygon.com/dcucores": "10"}
    resources = {"limits": limits, "requests": dict(limits)}
    return pod(name, [container("main", asks(1, 10)), container("other", resources)])
