"""Packed costs put sets in the order in which their costs do.

It exists because the search compares integers and all other code compares `Cost`. It must not know how many bits a
field has. Invariant: for any two sets of the same candidates both orders agree.
"""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from accounting.answers.preemption import NodePod, cost_of
from accounting.answers.preemption.candidates import importance
from accounting.answers.preemption.packed_costs import PackedCosts
from accounting.pod import DeviceRow
from accounting.pod_info import NOT_STARTED
from accounting.pod_record import record_pod
from tests.builders import make_pod

# Few values each, so that sets often agree in the first fields.
SMALL_RESIDENTS = st.tuples(
    st.sampled_from((-(2**31), -1, 0, 0, 7, 2**31 - 1)),
    st.sampled_from((0, 0, 5, NOT_STARTED)),
    st.lists(st.tuples(st.sampled_from((0, 8, 8, 2**31 - 1)), st.sampled_from((0, 30))), max_size=2),
)


def resident(uid: str, priority: int, started: int, rows: list[tuple[int, int]]) -> NodePod:
    allocation = (tuple(DeviceRow(f"GPU-{at}", memory, cores) for at, (memory, cores) in enumerate(rows)),)
    pod = make_pod(uid, node="n0", allocation=allocation if rows else None)
    return NodePod(record_pod(pod), priority, started)


@given(st.lists(SMALL_RESIDENTS, min_size=1, max_size=5), st.permutations("abcde"))
def test_packed_costs_compare_as_costs_do(given: list[tuple[int, int, list[tuple[int, int]]]], uids: list[str]) -> None:
    pods = sorted((resident(uid, *each) for uid, each in zip(uids, given, strict=False)), key=importance)
    packed = PackedCosts(pods)
    places = range(len(pods))
    sets = [chosen for size in range(1, len(pods) + 1) for chosen in combinations(places, size)]
    sums = [packed.leads[chosen[0]] + sum(packed.adds[at] for at in chosen) for chosen in sets]
    costs = [cost_of([pods[at] for at in chosen], ()) for chosen in sets]
    for one, other in product(range(len(sets)), repeat=2):
        assert (sums[one] < sums[other]) == (costs[one] < costs[other]), (sets[one], sets[other])


@given(st.lists(SMALL_RESIDENTS, min_size=2, max_size=6))
def test_a_pod_adds_at_least_what_is_promised(given: list[tuple[int, int, list[tuple[int, int]]]]) -> None:
    pods = sorted((resident(f"{at}", *each) for at, each in enumerate(given)), key=importance)
    packed = PackedCosts(pods)
    for following, least in enumerate(packed.least_after[:-1]):
        assert all(least <= added for added in packed.adds[following:])
