"""Quotas and the charges of namespaces, with the numbers that users of such systems reported.

It exists because each of these numbers was once wrong in some system. It must not know HTTP. Invariant: a test's name
says which report it is (user_reports A40 to A55); `Namespaces` only joins the pieces.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from accounting.holdings import Total
from accounting.pod import Container, Pod
from accounting.pod_record import PodRecord, State, record_pod
from accounting.quota.limits import Exceeded, QuotaCheck, QuotaTable, passed_problem
from accounting.quota.objects import read_quota
from accounting.quota_scope import PodScope, ScopeRequirement, Selector, make_selector, selects
from accounting.state.cache import Cache
from accounting.status import ProblemCode
from accounting.vendor import NVIDIA, Vendor
from tests.builders import app, init, make_allocation, make_pod, plain, sidecar

COUNT, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
LIMIT_MEMORY, REQUEST_MEMORY = f"limits.{MEMORY}", f"requests.{MEMORY}"
MEBI = 2**20


class Namespaces:
    """Quotas, a cache that counts pods, and the question whether a pod exceeds a limit."""

    def __init__(self, vendor: Vendor = NVIDIA) -> None:
        self.table, self.cache, self.vendor = QuotaTable(vendor), Cache(), vendor

    def limit(
        self, hard: Mapping[str, object], name: str = "q", *scopes: ScopeRequirement, namespace: str = "default"
    ) -> bool:
        return self.table.put(read_quota(namespace, name, hard, self.vendor, make_selector(scopes)))

    def run(self, name: str, *containers: Container, **more: object) -> Pod:
        """A running pod with its rows on one card."""
        pod = make_pod(name, containers)._replace(node="n1", **more)  # type: ignore[arg-type]  # fields of a pod
        asked = [container.request for container in pod.containers]
        rows = [[("GPU-0", ask.memory, ask.cores)] * ask.count if ask else [] for ask in asked]
        pod = pod._replace(allocation=make_allocation(*rows))
        self.cache.add_pod(record_pod(pod))
        return pod

    def check(self, pod: Pod) -> QuotaCheck:
        own = self.cache.pods.get(pod.uid)

        def used(selector: Selector) -> Total:
            total = self.cache.used(pod.namespace, selector)
            if own is None or not selects(selector, own.scope):
                return total
            return Total(*(a - b for a, b in zip(total, own.held_total, strict=True)))

        return self.table.check(pod, used)

    def refuses(self, *containers: Container, **more: object) -> list[str]:
        pod = make_pod("asking", containers)._replace(**more)  # type: ignore[arg-type]  # fields of a pod
        return [each.resource for each in self.check(pod).exceeded]

    def used(self) -> Total:
        return self.cache.used("default")


@pytest.fixture
def ns() -> Namespaces:
    return Namespaces()


# -- reports, by number ------------------------------------------------------------------------------------------------


def test_a03_an_init_counts_for_the_quota_at_its_peak(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 24 * 1024})
    assert ns.refuses(init(30 * 1024), app(4 * 1024)) == [MEMORY]
    assert ns.refuses(sidecar(10 * 1024), app(10 * 1024)) == []
    ns.run("p", sidecar(10 * 1024), app(10 * 1024))
    assert ns.used().memory == 20 * 1024


def test_a08_the_order_of_sidecar_and_init_decides_for_the_quota(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 250})
    assert ns.refuses(sidecar(100), init(200), app(100)) == [MEMORY]
    assert ns.refuses(init(200), sidecar(100), app(100)) == []


def test_a09_the_charge_follows_the_pod_from_its_peak_to_its_steady_state(ns: Namespaces) -> None:
    pod = ns.run("p", init(20), sidecar(2), app(10))
    assert ns.used() == Total(2, 20, 0)
    ns.cache.update_pod(record_pod(pod._replace(inits_over=True)))
    assert ns.used() == Total(2, 12, 0)


def test_a13_a_pod_whose_only_request_is_an_init_s_is_charged(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 4000})
    assert ns.refuses(init(8000), plain()) == [MEMORY]
    ns.limit({LIMIT_MEMORY: 8000})
    assert ns.refuses(init(8000), plain()) == []
    pod = ns.run("p", init(8000), plain())
    assert ns.used().memory == 8000
    ns.cache.update_pod(record_pod(pod._replace(inits_over=True)))
    assert ns.used() == Total()


def test_a40_the_charge_is_multiplied_by_the_count(ns: Namespaces) -> None:
    ns.run("p", app(2048, count=2, cores=20))
    assert ns.used() == Total(2, 4096, 40)
    ns.limit({LIMIT_MEMORY: 8191, f"limits.{CORES}": 80})
    assert ns.refuses(app(2048, count=2, cores=20)) == [MEMORY]
    ns.limit({LIMIT_MEMORY: 8192, f"limits.{CORES}": 79})
    assert ns.refuses(app(2048, count=2, cores=20)) == [CORES]
    ns.limit({LIMIT_MEMORY: 8192, f"limits.{CORES}": 80})
    assert ns.refuses(app(2048, count=2, cores=20)) == []


def test_a41_containers_are_judged_together(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 2048})
    assert ns.refuses(app(1500), app(1500)) == [MEMORY]
    assert ns.refuses(app(1500)) == []


def test_a43_an_edit_is_one_step_and_a_status_is_none(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 1000})
    ns.run("p", app(1000))
    for number in range(2000):
        assert ns.limit({LIMIT_MEMORY: 1000 - number % 2}) == (number > 0)
        assert ns.refuses(app(1)) == [MEMORY]
    assert not ns.limit({LIMIT_MEMORY: 999})


def test_a44_keys_that_leave_and_objects_that_leave_limit_nothing(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 8000, f"limits.{CORES}": 100})
    assert ns.refuses(app(9000, cores=101)) == [CORES, MEMORY]
    ns.limit({LIMIT_MEMORY: 8000})
    assert ns.refuses(app(9000, cores=101)) == [MEMORY]
    assert ns.table.remove("default", "q")
    assert ns.refuses(app(9000, cores=101)) == []
    assert not ns.table.remove("default", "q")
    assert ns.table.namespaces() == []


@pytest.mark.parametrize("prefix", ["limits.", "requests."])
def test_a44_both_spellings_limit(ns: Namespaces, prefix: str) -> None:
    ns.limit({f"{prefix}{COUNT}": 1, f"{prefix}{MEMORY}": 100, f"{prefix}{CORES}": 10})
    assert ns.refuses(app(101, count=2, cores=11)) == [COUNT, CORES, MEMORY]
    assert ns.refuses(app(100, cores=10)) == []
    assert all(limit.enforced_by_api == (prefix == "requests.") for limit in ns.table.limits_of("default"))


def test_a44_of_both_spellings_in_one_object_the_tighter_counts(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 100, REQUEST_MEMORY: 200})
    assert ns.table.limits("default") == {MEMORY: 100}
    ns.limit({LIMIT_MEMORY: 200, REQUEST_MEMORY: 100})
    assert ns.table.limits("default") == {MEMORY: 100}


def test_a46_every_way_out_gives_the_charge_back_once(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 8000})
    a = record_pod(make_pod("a", [app(8000)])._replace(node="n1", allocation=make_allocation([("GPU-0", 8000, 0)])))
    ended = a.in_state(State.RELEASED)
    ways_out: list[Callable[[], None]] = [
        partial(ns.cache.forget_pod, a.uid),
        partial(ns.cache.remove_pod, a.uid),
        partial(ns.cache.update_pod, ended),
    ]
    for way_out in ways_out:
        ns.cache.assume_pod(a)
        assert ns.refuses(app(8000)) == [MEMORY]
        for _ in range(3):
            way_out()
            assert ns.used() == Total()
        assert ns.refuses(app(8000)) == []


def test_a47_a_second_release_changes_nothing(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 10_000})
    pod = ns.run("p", app(6000))
    ns.cache.update_pod(record_pod(pod._replace(terminal=True)))
    ns.cache.remove_pod(pod.uid)
    assert ns.used() == Total()
    assert ns.refuses(app(10_001)) == [MEMORY]


@pytest.mark.parametrize(
    "key, raw, why",
    [
        ("requests.nvidia.com/gpux", "1", "names nothing that is managed"),
        (MEMORY, "1", f"write requests.{MEMORY} or limits.{MEMORY}"),
        (COUNT, "1", f"write requests.{COUNT}"),
        ("request.nvidia.com/gpu", "1", "names nothing that is managed"),
        ("limits.NVIDIA.com/gpumem", "1", "names nothing that is managed"),
        ("limits.gpumem", "1", "names nothing that is managed"),
        ("requests.nvidia.com/gpumem-percentage", "50", "percentages are charged as memory"),
        (LIMIT_MEMORY, "many", "is not a quantity of at least 0"),
        (LIMIT_MEMORY, "-1", "is not a quantity of at least 0"),
        (LIMIT_MEMORY, [], "is not a quantity of at least 0"),
        (LIMIT_MEMORY, True, "is not a quantity of at least 0"),
        pytest.param(LIMIT_MEMORY, 10**5000, "is not a quantity of at least 0", id="too many digits"),
    ],
)
def test_a48_a_key_or_value_without_effect_is_reported(ns: Namespaces, key: str, raw: object, why: str) -> None:
    ns.limit({key: raw, f"limits.{CORES}": 10})
    (problem,) = ns.table.problems()
    assert (problem.code, problem.object) == (ProblemCode.UNKNOWN_QUOTA_KEY, "resourcequota default/q")
    assert key in problem.message
    assert why in problem.message
    assert ns.table.limits("default") == {CORES: 10}


@pytest.mark.parametrize("key", ["pods", "cpu", "requests.memory", "requests.amd.com/gpu", "count/jobs.batch", "gpu"])
def test_a48_what_is_not_ours_is_no_problem(ns: Namespaces, key: str) -> None:
    ns.limit({key: "1"})
    assert ns.table.problems() == []
    assert ns.table.namespaces() == []


def test_a48_memory_in_bytes_is_told_the_unit(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: "24Gi"})
    (problem,) = ns.table.problems()
    assert "unit is MiB" in problem.message
    assert "write 24576" in problem.message
    assert ns.table.limits("default") == {MEMORY: 24 * 1024 * MEBI}


def test_a48_a_scope_that_takes_no_pod_is_reported(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 1}, "q", ScopeRequirement("VolumeAttributesClass"))
    (problem,) = ns.table.problems()
    assert "VolumeAttributesClass" in problem.message
    assert ns.refuses(app(2)) == []


def test_a49_the_unit_s_factor_is_applied_once_on_both_sides() -> None:
    ns = Namespaces(replace(NVIDIA, memory_factor=1024))
    ns.limit({LIMIT_MEMORY: 8})
    assert ns.table.limits("default") == {MEMORY: 8192}
    assert ns.refuses(app(8192)) == []
    assert ns.refuses(app(8193)) == [MEMORY]


def test_a50_fractions_of_a_limit_are_exact(ns: Namespaces) -> None:
    ns.limit({f"requests.{COUNT}": "3e-1"})
    assert ns.table.limits("default") == {COUNT: 0}
    ns.limit({f"requests.{COUNT}": "2500m"})
    ns.run("p", app(1))
    assert ns.refuses(app(1)) == []
    assert ns.refuses(app(1, count=2)) == [COUNT]


def test_a52_the_tightest_dimension_decides(ns: Namespaces) -> None:
    ns.limit({f"limits.{COUNT}": 2, LIMIT_MEMORY: 1, f"limits.{CORES}": 1})
    assert ns.refuses(app(1024, cores=10)) == [CORES, MEMORY]


def test_a53_a_quota_counts_the_pods_that_were_there_before_it(ns: Namespaces) -> None:
    for number in range(3):
        ns.run(f"p{number}", app(2000))
    ns.limit({LIMIT_MEMORY: 10_000})
    assert ns.used().memory == 6000
    assert ns.refuses(app(4000)) == []
    (passed,) = ns.check(make_pod("asking", [app(5000)])).exceeded
    assert str(passed) == f"quota default/q: {MEMORY}: hard 10000, used 6000, the pod adds 5000"


def test_a53_a_replacement_is_counted_once(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 10_000})
    pod = ns.run("p", app(6000))
    assert not ns.check(pod).exceeded
    ns.run("p", app(6000))
    assert ns.used().memory == 6000


def test_a54_what_is_certain_is_checked_and_the_rest_is_left_to_the_cards(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 20_000})
    check = ns.check(make_pod("p", [app(percentage=50)]))
    assert check.exceeded == ()
    assert check.budget is not None
    assert check.budget.memory is not None
    assert check.budget.memory[::2] == (20_000, 0)
    assert ns.refuses(app(percentage=50), app(20_000)) == [MEMORY]
    ns.run("p", app(15_000))
    later = ns.check(make_pod("q", [app(percentage=50)])).budget
    assert later is not None
    assert later.memory is not None
    assert (later.memory.most, later.memory.limit.quota) == (5_000, "q")


@pytest.mark.parametrize("asking", [app(percentage=1), app(), init(percentage=50)])
def test_a54_a_limit_that_is_reached_blocks_memory_of_unknown_size(ns: Namespaces, asking: Container) -> None:
    ns.limit({LIMIT_MEMORY: 0})
    assert ns.refuses(asking) == [MEMORY]
    ns.limit({LIMIT_MEMORY: 500})
    ns.run("p", app(500))
    (passed,) = ns.check(make_pod("asking", [asking])).exceeded
    assert str(passed).endswith("hard 500, used 500, the pod adds at least 1")


def test_a54_an_unknown_size_below_what_is_certain_adds_nothing_yet(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 100})
    check = ns.check(make_pod("p", [init(percentage=10), app(100)]))
    assert check.exceeded == ()
    assert check.budget is not None
    assert check.budget.mib_of_shared_cards == 100


def test_a54_certain_memory_needs_no_look_at_the_cards(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 100})
    assert ns.check(make_pod("p", [app(50)])) == QuotaCheck()
    ns.limit({f"limits.{COUNT}": 2})
    assert ns.check(make_pod("p", [app(percentage=50)])) == QuotaCheck()


# -- several objects, scopes, peaks ------------------------------------------------------------------------------------


def test_of_several_objects_the_tightest_wins_and_its_end_lifts_only_itself(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 300}, "wide")
    ns.limit({REQUEST_MEMORY: 100}, "tight")
    (limit,) = ns.table.limits_of("default")
    assert (limit.quota, limit.hard, limit.enforced_by_api) == ("tight", 100, True)
    assert ns.table.remove("default", "tight")
    (limit,) = ns.table.limits_of("default")
    assert (limit.quota, limit.hard, limit.enforced_by_api) == ("wide", 300, False)


def test_zero_blocks_what_asks_for_it_and_nothing_else(ns: Namespaces) -> None:
    ns.limit({f"limits.{CORES}": 0})
    assert ns.refuses(app(100, cores=1)) == [CORES]
    assert ns.refuses(app(100)) == []
    assert ns.refuses(plain()) == []


def test_another_namespace_is_not_limited(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 0}, namespace="other")
    assert ns.refuses(app(100)) == []


def test_a_quota_with_a_scope_counts_and_limits_only_the_pods_that_it_takes(ns: Namespaces) -> None:
    high, low = PodScope(priority_class="high"), PodScope(priority_class="low")
    ns.run("low", app(900), scope=low)
    ns.run("high", app(50), scope=high)
    ns.limit({LIMIT_MEMORY: 100}, "q", ScopeRequirement("PriorityClass", "In", ("high",)))
    assert ns.refuses(app(50), scope=high) == []
    assert ns.refuses(app(51), scope=high) == [MEMORY]
    assert ns.refuses(app(5000), scope=low) == []
    (passed,) = ns.check(make_pod("asking", [app(51)])._replace(scope=high)).exceeded
    assert str(passed).startswith("quota default/q (PriorityClass In high): ")


def test_a_pod_counts_for_a_scope_from_the_moment_that_it_is_in_it(ns: Namespaces) -> None:
    ending = make_selector([ScopeRequirement("Terminating")])
    pod = ns.run("p", app(70))
    assert ns.cache.used("default", ending) == Total()
    ns.cache.update_pod(record_pod(pod._replace(scope=PodScope(terminating=True))))
    assert ns.cache.used("default", ending) == Total(1, 70, 0)
    assert ns.used() == Total(1, 70, 0)


def test_a_peak_that_comes_back_over_the_limit_is_reported_and_keeps_others_out(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 30})
    pod = ns.run("p", init(20), app(10), inits_over=True)
    ns.run("q", app(15))
    assert ns.table.passed(ns.cache.used) == []
    ns.cache.update_pod(record_pod(pod._replace(inits_over=False)))
    passed = ns.table.passed(ns.cache.used)
    assert [(each.resource, each.hard, each.used) for each in passed] == [(MEMORY, 30, 35)]
    problem = passed_problem(passed[0])
    assert (problem.code, problem.object) == (ProblemCode.OVERCOMMITTED, "resourcequota default/q")
    assert ns.refuses(app(1)) == [MEMORY]
    assert ns.refuses(plain()) == []
    ns.cache.update_pod(record_pod(pod._replace(inits_over=True)))
    assert ns.table.passed(ns.cache.used) == []


def test_limits_beyond_any_machine_s_numbers_are_kept_within_them(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: "1e25", f"limits.{COUNT}": 10**30})
    assert set(ns.table.limits("default").values()) == {2**63 - 1}


def test_what_was_counted_is_gone_with_its_pods() -> None:
    ns = Namespaces()
    pods = [ns.run(f"p{at}", app(1), namespace=f"ns{at}", scope=PodScope(priority_class=str(at))) for at in range(5)]
    for pod in pods:
        ns.cache.remove_pod(pod.uid)
    assert ns.cache._requested.namespaces() == []


def test_an_exceeded_limit_has_its_numbers(ns: Namespaces) -> None:
    ns.limit({LIMIT_MEMORY: 10})
    (passed,) = ns.check(make_pod("p", [app(11)])).exceeded
    assert isinstance(passed, Exceeded)
    assert (passed.resource, passed.hard, passed.used, passed.added, passed.at_least) == (MEMORY, 10, 0, 11, False)


def test_a_record_has_the_scope_of_its_pod() -> None:
    scope = PodScope(best_effort=True)
    record = record_pod(make_pod("p", [app(1)])._replace(scope=scope))
    assert isinstance(record, PodRecord)
    assert record.scope == record.in_state(record.state).scope == scope
