"""Short questions about pods and cards, for the stories of the live cluster.

It exists so that a test shows only what it is about. It must not change anything. Invariant: "held" is what the
extender counts, "bound" what the API server's objects say.
"""

from accounting.pod_state import PodState
from accounting.status import ProblemCode
from tests.extender.objects import Json, asks, container, pod
from tests.live.harness import Bench

GPU = "GPU-n1-0"


def whole(name: str) -> Json:
    """A pod that takes a card of 1000 MiB."""
    return pod(name, [container("main", asks(1, 1000))])


def state(bench: Bench, made: Json) -> PodState | None:
    """Return the state of a pod's booking."""
    return bench.live.cluster.cache.state(made["metadata"]["uid"])


def bound_by_card(bench: Bench) -> dict[str, list[str]]:
    """Return the pods on each card, by the API server's objects."""
    found: dict[str, list[str]] = {}
    for name in sorted(bench.audit.bound()):
        for uuid in bench.audit.uuids(name):
            found.setdefault(uuid, []).append(name)
    return found


def held(bench: Bench, uuid: str = GPU) -> tuple[int, int, int]:
    """Return what the extender counts on a card: slots, memory, cores."""
    reports = [use for record in bench.live.cluster.cache.pods.values() for use in record.held if use.uuid == uuid]
    return sum(use.slots for use in reports), sum(use.memory for use in reports), sum(use.cores for use in reports)


def problems(bench: Bench) -> set[tuple[str, ProblemCode]]:
    """Return object and code of every problem."""
    return {(problem.object, problem.code) for problem in bench.live.cluster.problems()}


def orphan(node_name: str, uuid: str) -> set[tuple[str, ProblemCode]]:
    """Return the problems of a card that is held but not registered, so that it has no capacity."""
    where = f"node {node_name} device {uuid}"
    return {(where, ProblemCode.ORPHANED_DEVICE)}


async def takes(bench: Bench, memory: int, name: str = "n1") -> bool:
    """Whether a node takes one more pod of that size."""
    return name in (await bench.scheduler.filter(pod("asking", memory=memory), name)).passed


async def stays_so(bench: Bench) -> None:
    """Check that the state agrees, and that a new process that only lists has the same."""
    await bench.agrees()
    await bench.restart()
    await bench.agrees()
