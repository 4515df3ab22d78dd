"""The life of pods on a live cluster: shrink, growth back, end, deletion, new UIDs, edited allocations.

It exists because usage is lost or kept too long through events between two looks. It must not repeat the rules, which
have tests of their own. Invariant: after each story the state is the reference's, and a restart changes only what
depends on an earlier reading.
"""

import pytest

from accounting.status import ProblemCode
from tests.extender import objects
from tests.extender.objects import (
    ALLOCATION,
    STARTING,
    STEADY,
    asks,
    bound,
    card,
    container,
    node,
    phased,
    pod,
    rows,
    status_of,
    terminated,
)
from tests.live.harness import Bench, eventually, running
from tests.live.harness_pods import GPU, held, problems, stays_so, takes

# -- pods --------------------------------------------------------------------------------------------------------------


async def test_shrink_and_growth_back() -> None:
    async with running(node("n1"), phased(STARTING)) as bench:
        assert held(bench)[1] == 22
        bench.kube.set_status("p", STEADY)
        await eventually(lambda: held(bench)[1] == 12)
        await stays_so(bench)
        # The sandbox is lost, so the init runs again.
        bench.kube.set_status("p", STARTING)
        await eventually(lambda: held(bench)[1] == 22)
        await stays_so(bench)


async def test_growth_back_over_what_was_given_away_is_reported_and_closes_the_card() -> None:
    async with running(node("n1", memory=30), phased(STEADY)) as bench:
        await bench.scheduler.place(bench.kube.create(pod("q", memory=15)))
        bench.kube.set_status("p", STARTING)
        await eventually(lambda: held(bench)[1] == 37)
        assert problems(bench) == {(f"node n1 device {GPU}", ProblemCode.OVERCOMMITTED)}
        assert not await takes(bench, 1)
        bench.audit.overcommitted.clear()
        await bench.agrees()
        bench.kube.set_status("p", STEADY)
        await eventually(lambda: held(bench)[1] == 27)
        assert await takes(bench, 3)
        await stays_so(bench)


async def test_a_sidecar_that_restarts_changes_nothing() -> None:
    async with running(node("n1"), phased(STEADY)) as bench:
        await eventually(lambda: held(bench)[1] == 12)
        for side in (terminated("side"), objects.running("side"), terminated("side", exit_code=1)):
            bench.kube.set_status("p", status_of("Running", side, terminated("init")))
            await bench.caught_up()
            assert held(bench)[1] == 12
        await stays_so(bench)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_terminal_pod_holds_nothing(phase: str) -> None:
    async with running(node("n1"), bound("p", "n1", GPU, 1000)) as bench:
        bench.kube.set_status("p", {"phase": phase})
        await eventually(lambda: held(bench) == (0, 0, 0))
        assert await takes(bench, 1000)
        await stays_so(bench)


async def test_the_same_name_with_a_new_uid() -> None:
    async with running(node("n1"), bound("p", "n1", GPU, 600)) as bench:
        new = bench.kube.recreate(pod("p", memory=400))
        await bench.caught_up()
        assert held(bench) == (0, 0, 0)
        assert await bench.scheduler.place(new) == "n1"
        assert held(bench) == (1, 400, 0)
        await stays_so(bench)


async def test_the_same_name_with_a_new_uid_in_a_watch_gap() -> None:
    async with running(node("n1"), bound("p", "n1", GPU, 600)) as bench:
        async with bench.watch_gap():
            new = bench.kube.recreate(pod("p", memory=400))
            assert await bench.scheduler.place(new) == "n1"
            # Nothing has shown yet that the old pod is gone, so both count.
            assert held(bench) == (2, 1000, 0)
        await bench.live.reflectors[1].list_again()
        await stays_so(bench)
        assert held(bench) == (1, 400, 0)


async def test_a_pod_deleted_in_a_watch_gap_right_after_its_binding() -> None:
    """The list does not name a pod whose Binding was accepted: a read shows that it is gone."""
    async with running(node("n1")) as bench:
        async with bench.watch_gap():
            await bench.scheduler.place(bench.kube.create(pod("p", memory=1000)))
            bench.kube.delete_pod("p")
        assert not await takes(bench, 1000)
        await bench.live.reflectors[1].list_again()
        await eventually(lambda: held(bench) == (0, 0, 0))
        assert await takes(bench, 1000)
        await stays_so(bench)


async def test_a_pod_that_was_bound_elsewhere_without_an_allocation_blocks_its_node() -> None:
    async with running(node("n1"), node("n2")) as bench:
        bench.kube.create(pod("p", memory=100))
        bench.kube.bind("p", "n1")
        await bench.agrees()
        assert problems(bench) == {("pod default/p", ProblemCode.MISSING_ALLOCATION)}
        assert not await takes(bench, 1)
        assert await takes(bench, 1, "n2")
        await stays_so(bench)


async def test_one_pod_that_does_not_decode_changes_nothing_but_itself() -> None:
    broken = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "broken", "uid": "b"}, "spec": {"containers": 7}}
    async with running(node("n1"), broken, bound("p", "n1", GPU, 600)) as bench:
        assert held(bench) == (1, 600, 0)
        assert await bench.scheduler.place(bench.kube.create(pod("q", memory=400))) == "n1"
        assert held(bench) == (2, 1000, 0)


# -- an allocation that is edited after binding ------------------------------------------------------------------------


async def edited(bench: Bench, text: str | None) -> None:
    """Edit the allocation of pod p."""
    bench.kube.annotate_pod("p", {ALLOCATION: text})
    await bench.caught_up()


@pytest.mark.parametrize("seen", ["listed", "bound-by-us"])
async def test_an_edited_allocation_keeps_the_larger_value_per_card_and_is_a_problem(seen: str) -> None:
    cards = [card("GPU-a", 0), card("GPU-b", 1)]
    listed = [bound("p", "n1", "GPU-a", 600, cores=10)] if seen == "listed" else []
    async with running(node("n1", cards), *listed) as bench:
        if not listed:
            only_a = {"nvidia.com/use-gpuuuid": "GPU-a"}
            asking = pod("p", [container("main", asks(1, 600, 10))], annotations=only_a)
            await bench.scheduler.place(bench.kube.create(asking))
        await edited(bench, rows([("GPU-a", 100, 30)]))
        assert held(bench, "GPU-a") == (1, 600, 30)
        (problem,) = bench.live.cluster.problems()
        assert (problem.code, problem.object) == (ProblemCode.UNDECODABLE_ALLOCATION, "pod default/p")
        assert "edited after the pod was bound" in problem.message
        # The edit names another card: the old one stays, and the new one counts too.
        await edited(bench, rows([("GPU-b", 200, 0)]))
        assert (held(bench, "GPU-a"), held(bench, "GPU-b")) == ((1, 600, 30), (1, 200, 0))
        # Neither later events of the pod nor the old text undo that.
        bench.kube.set_status("p", {"phase": "Running", "message": "still there"})
        await edited(bench, rows([("GPU-a", 600, 10)]))
        assert (held(bench, "GPU-a"), held(bench, "GPU-b")) == ((1, 600, 30), (1, 200, 0))
        assert problems(bench) == {("pod default/p", ProblemCode.UNDECODABLE_ALLOCATION)}
        # The value may still grow.
        await edited(bench, rows([("GPU-a", 900, 10)]))
        assert held(bench, "GPU-a") == (1, 900, 30)
        # A new process has no earlier reading.
        await bench.restart()
        assert (held(bench, "GPU-a"), held(bench, "GPU-b")) == ((1, 900, 10), (0, 0, 0))
        assert problems(bench) == set()
        bench.kube.delete_pod("p")
        await bench.agrees()


async def test_an_edit_that_only_adds_stays_a_problem_also_when_other_things_change() -> None:
    async with running(node("n1"), bound("p", "n1", GPU, 600)) as bench:
        await edited(bench, rows([(GPU, 900, 0)]))
        assert held(bench) == (1, 900, 0)
        bench.kube.delete_pod("p", grace_seconds=300)
        bench.kube.annotate_pod("p", {"nvidia.com/nouse-gpuuuid": "GPU-z"})
        await bench.caught_up()
        assert problems(bench) == {("pod default/p", ProblemCode.UNDECODABLE_ALLOCATION)}
        assert held(bench) == (1, 900, 0)


async def test_an_allocation_that_is_broken_after_binding_keeps_its_cards_until_a_restart() -> None:
    async with running(node("n1", 2), bound("p", "n1", GPU, 600)) as bench:
        await edited(bench, "GPU-n1-0,NVIDIA,many,0:;")
        assert held(bench) == (1, 600, 0)
        assert problems(bench) == {("pod default/p", ProblemCode.UNDECODABLE_ALLOCATION)}
        assert await takes(bench, 400)
        await edited(bench, None)
        assert held(bench) == (1, 600, 0)
        await bench.restart()
        assert held(bench) == (0, 0, 0)
        assert not await takes(bench, 1)
        await bench.agrees()


async def test_an_edit_that_empties_the_rows_frees_nothing() -> None:
    async with running(node("n1"), bound("p", "n1", GPU, 1000, cores=100)) as bench:
        await edited(bench, rows([]))
        assert held(bench) == (1, 1000, 100)
        assert not await takes(bench, 1)


async def test_what_the_plugin_writes_is_no_edit() -> None:
    """HAMi's plugin blanks rows of the other annotation, and appends semicolons."""
    async with running(node("n1"), bound("p", "n1", GPU, 600)) as bench:
        texts = {ALLOCATION: rows([(GPU, 600, 0)]) + ";;", "hami.io/vgpu-devices-to-allocate": ";;"}
        bench.kube.annotate_pod("p", texts)
        await bench.caught_up()
        assert problems(bench) == set()
        await stays_so(bench)


async def test_an_edited_allocation_of_a_pod_with_an_init_keeps_the_larger_value_in_both_states() -> None:
    async with running(node("n1"), phased(STARTING)) as bench:
        assert held(bench)[1] == 22
        await edited(bench, rows([(GPU, 2, 0)], [(GPU, 5, 0)], [(GPU, 18, 0)]))
        assert held(bench)[1] == 22
        bench.kube.set_status("p", STEADY)
        await eventually(lambda: held(bench)[1] == 20)
