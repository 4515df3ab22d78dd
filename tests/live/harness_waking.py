"""Pods that no node takes, and which of them were woken.

It exists so that a test of waking shows only what frees room, and which pods that wakes. It must not look into the
waker. Invariant: a wake is a patch of the pending pod that the API server sees.
"""

from extender.convert.annotations import RETRY_AT
from tests.apiserver.resources import PODS
from tests.extender.objects import Json
from tests.live.harness import Bench
from tests.virtual_time import passes

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def woken(bench: Bench) -> list[str]:
    """Return the woken pods, in order of their patches; a pod comes as often as it was woken."""
    found, last = [], dict[str, str | None]()
    for event in bench.api.store.tables[PODS].history.after(0):
        meta = event.row.decode()["metadata"]
        retry = (meta.get("annotations") or {}).get(RETRY_AT)
        if retry is not None and last.get(meta["uid"]) != retry:
            found.append(meta["name"])
        last[meta["uid"]] = retry
    return found


async def refuse(bench: Bench, *pods: Json) -> list[Json]:
    """Create pods that no node takes."""
    made = [bench.kube.create(each) for each in pods]
    for each in made:
        assert (await bench.scheduler.filter(each)).passed == []
        # The pod that was refused first is woken first.
        await passes(0.001)
    await bench.caught_up()
    return made
