"""The CPU that a node's pods request, with and without cards, and the stamps of rows."""

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from accounting.pod_record import PodRecord, record_pod
from accounting.state.cache import Cache
from tests.builders import app, make_allocation, make_node, make_pod


def _pod(name: str, node: str | None, cpu_milli: int, *, terminal: bool = False) -> PodRecord:
    pod = make_pod(name, [app(100)], node=node, allocation=make_allocation([("GPU-0", 100, 0)]), terminal=terminal)
    return record_pod(pod._replace(cpu_milli=cpu_milli))


def _cpu(cache: Cache, node: str) -> int:
    snapshot = cache.snapshot()
    return int(snapshot.requested.cpu_milli[snapshot.rows[node]])


def test_pods_with_and_without_cards_count_until_they_end() -> None:
    cache = Cache()
    cache.put_cardless_pod("daemon", "n1", 300)
    cache.add_node(make_node("n1"))
    cache.add_pod(_pod("a", "n1", 2000))
    assert _cpu(cache, "n1") == 2300
    cache.put_cardless_pod("daemon", "n1", 500)
    assert _cpu(cache, "n1") == 2500
    cache.add_pod(_pod("a", "n1", 2000, terminal=True))
    assert _cpu(cache, "n1") == 500
    cache.remove_node("n1")
    cache.add_node(make_node("n1", 2))
    assert _cpu(cache, "n1") == 500
    cache.remove_cardless_pod("daemon")
    cache.remove_cardless_pod("daemon")
    assert _cpu(cache, "n1") == 0


def test_an_equal_report_of_a_pod_without_cards_changes_nothing() -> None:
    cache = Cache()
    cache.add_node(make_node("n1"))
    cache.put_cardless_pod("daemon", "n1", 300)
    before = cache.generation, cache.snapshot().stamps.tolist()
    cache.put_cardless_pod("daemon", "n1", 300)
    assert (cache.generation, cache.snapshot().stamps.tolist()) == before


def test_every_change_of_a_row_gives_it_a_stamp_that_no_row_had() -> None:
    cache = Cache()
    seen: set[int] = set()
    changes: list[Callable[[], None]] = [
        lambda: cache.add_node(make_node("n1")),
        lambda: cache.add_node(make_node("n2")),
        lambda: cache.add_pod(_pod("a", "n1", 1)),
        lambda: cache.put_cardless_pod("d", "n1", 1),
        lambda: cache.remove_pod("uid-a"),
        lambda: cache.update_node(make_node("n1", 3)),
    ]
    for change in changes:
        before = cache.snapshot().stamps
        change()
        after = cache.snapshot().stamps
        new = {int(stamp) for stamp in after[np.flatnonzero(before != after)]}
        assert new
        assert not new & seen
        seen |= new


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["n1", "n2"]), st.integers(0, 3)), max_size=20))
def test_sums_are_those_of_the_last_report_of_every_pod(reports: list[tuple[str, str, int]]) -> None:
    cache = Cache()
    cache.add_node(make_node("n1"))
    cache.add_node(make_node("n2"))
    last: dict[str, tuple[str, int]] = {}
    for uid, node, cpu_milli in reports:
        cache.put_cardless_pod(uid, node, cpu_milli)
        last[uid] = node, cpu_milli
    for node in ("n1", "n2"):
        assert _cpu(cache, node) == sum(cpu for on, cpu in last.values() if on == node)
