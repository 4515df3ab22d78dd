"""Pods that a quota keeps out are woken when its usage falls, whichever other pods it refuses meanwhile.

They exist because a quota counts pods on all nodes, and each by its scopes, so an event on another node may open a
node, and only for some of a namespace's pods. They must not look into the waker beyond how much it remembers.
Invariant: a wake is a patch of the pending pod that the API server sees.
"""

import asyncio
import inspect

from hypothesis import given
from hypothesis import strategies as st

from accounting.quota_scope import PodScope
from accounting.state import NamespaceSums
from extender.live.waking import waker as waker_module
from extender.live.waking.charges import ChargesAtRefusal
from extender.live.waking.waker import Waker, WakeSettings
from tests.extender.objects import MEMORY, Json, bound, card, node, pod, quota
from tests.live.harness import eventually, running
from tests.live.harness_waking import refuse, woken

LIMIT = f"requests.{MEMORY}"
TWO_NODES = node("n1", [card("GPU-a")]), node("n2", [card("GPU-b")])
ON_B = {"nvidia.com/use-gpuuuid": "GPU-b"}


def of_class(made: Json, priority_class: str, priority: int = 0) -> Json:
    """The pod with a PriorityClass and its value."""
    made["spec"] |= {"priorityClassName": priority_class, "priority": priority}
    return made


async def test_a_pod_is_not_passed_over_for_another_one_whose_own_quota_is_used_up() -> None:
    """Both ask for the same, but the quota counts only the one with the higher priority."""
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    none_for_high = quota({LIMIT: "0"}, scopeSelector={"matchExpressions": [expression]})
    async with running(node("n1"), bound("a", "n1", "GPU-n1-0", 1000), none_for_high) as bench:
        await refuse(bench, of_class(pod("hi", memory=500), "high", 10), of_class(pod("lo", memory=500), "low"))
        bench.kube.delete_pod("a")
        await eventually(lambda: woken(bench) == ["lo"])


async def test_usage_that_falls_between_two_refusals_wakes() -> None:
    """The release's round of waking comes after another refusal in the same namespace."""
    held = bound("a", "n1", "GPU-a", 500), bound("b", "n1", "GPU-a", 100)
    wake = WakeSettings(debounce_seconds=0.5)
    async with running(*TWO_NODES, *held, quota({LIMIT: "600"}), wake=wake) as bench:
        await refuse(bench, pod("p", memory=400, annotations=ON_B))
        bench.kube.delete_pod("a")
        await eventually(lambda: bench.live.cluster.cache.state("uid-a") is None)
        other = bench.kube.create(pod("other", memory=550))
        assert (await bench.scheduler.filter(other)).passed == []
        await eventually(lambda: woken(bench) == ["p"])


async def test_usage_that_falls_twice_wakes_after_the_second_time() -> None:
    """The first fall is not enough for the pod, and no question comes between the two."""
    held = bound("a", "n1", "GPU-a", 300), bound("b", "n1", "GPU-a", 200)
    # There is one round for each change: a second one over all nodes would find the pod by chance.
    async with running(*TWO_NODES, *held, quota({LIMIT: "600"}), wake=WakeSettings(rounds=1)) as bench:
        await refuse(bench, pod("p", memory=500, annotations=ON_B), pod("small", memory=250, annotations=ON_B))
        bench.kube.delete_pod("a")
        # The wake of the other pod shows that the first fall was noticed.
        await eventually(lambda: "small" in woken(bench))
        bench.kube.delete_pod("small")
        await bench.caught_up()
        bench.kube.delete_pod("b")
        await eventually(lambda: "p" in woken(bench))


async def test_nothing_is_kept_of_namespaces_without_refused_pods() -> None:
    """The usage of a namespace without charges never falls, so nothing must be kept of it."""
    quotas = (quota({LIMIT: "100"}, namespace=name) for name in ("one", "two"))
    async with running(node("n1"), *quotas) as bench:
        made = [bench.kube.create(pod("p", memory=500, namespace=name)) for name in ("one", "two")]
        for each in made:
            assert (await bench.scheduler.filter(each)).passed == []
        waker = bench.live.waker
        assert len(waker._charges) == 2
        await bench.caught_up()
        bench.kube.send("DELETE", "/api/v1/namespaces/one/pods/p")
        await eventually(lambda: len(waker._refused) == 1)
        waker.freed("n1")
        await eventually(lambda: len(waker._charges) == 1)
        bench.kube.send("DELETE", "/api/v1/namespaces/two/pods/p")
        await eventually(lambda: len(waker._charges) == 0)


def begun_by_the_waker() -> list[str]:
    """Return the waker's tasks that run now."""
    running_now = [coroutine for task in asyncio.all_tasks() if inspect.iscoroutine(coroutine := task.get_coro())]
    return [each.__qualname__ for each in running_now if each.cr_code.co_filename == waker_module.__file__]


async def test_what_the_waker_started_ends_with_it() -> None:
    async with running(node("n1")) as bench:
        made = bench.kube.create(pod("p", memory=500))
        await bench.caught_up()
        pending = bench.live.cluster.pod(made["metadata"]["uid"])
        assert pending is not None
        hanging = bench.api.faults.add(fault="hang", resource="pods", verb="patch")
        waker = Waker(bench.live.cluster, bench.live.client, bench.live.is_ready)
        running_waker = asyncio.create_task(waker.run())
        waker.refused(pending)
        waker.freed("n1")
        await eventually(lambda: hanging.hits > 0, "the pod is being patched")
        running_waker.cancel()
        await asyncio.gather(running_waker, return_exceptions=True)
        assert begun_by_the_waker() == []


# -- what is remembered of charges -------------------------------------------------------------------------------------

SCOPES = PodScope(priority_class="high"), PodScope(priority_class="low")
happenings = st.lists(
    st.tuples(st.sampled_from(("refused", "looked", "came", "went")), st.sampled_from(SCOPES), st.integers(1, 3)),
    max_size=12,
)


@given(happenings)
def test_a_fall_in_any_scope_since_a_refusal_is_found_and_nothing_else(what: list[tuple[str, PodScope, int]]) -> None:
    sums = NamespaceSums()
    kept = ChargesAtRefusal(sums.by_scope)
    counted: list[tuple[PodScope, int]] = []
    refused_at: list[dict[PodScope, int]] = []

    def now() -> dict[PodScope, int]:
        return {scope: sum(amount for each, amount in counted if each is scope) for scope in SCOPES}

    for kind, scope, amount in what:
        if kind == "came":
            counted.append((scope, amount))
            sums.add("a", scope, [("memory", amount)])
        elif kind == "went" and counted:
            gone = counted.pop(0)
            sums.take("a", gone[0], [("memory", gone[1])])
        elif kind == "refused":
            kept.note("a")
            refused_at.append(now())
        elif kind == "looked":
            fallen = any(now()[each] < then[each] for then in refused_at for each in SCOPES)
            assert kept.have_fallen(lambda _: True) == fallen
            refused_at = [now()] if fallen else refused_at
