"""Which pods a quota with scopes counts, scope by scope and operator by operator, as the API server decides.

It exists because the operators are those of label selectors, where "not in" also takes what has no value. It must not
know quantities. Invariant: a scope that the API server would refuse to store takes no pod and says why.
"""

import pytest

from accounting.quota_scope import PodScope, ScopeRequirement, make_selector, selects

PLAIN = PodScope()
BEST_EFFORT = PodScope(best_effort=True)
ENDING = PodScope(terminating=True)
HIGH, LOW = PodScope(priority_class="high"), PodScope(priority_class="low")
ELSEWHERE = PodScope(cross_namespace_affinity=True)
EVERY = {
    "plain": PLAIN,
    "best effort": BEST_EFFORT,
    "ending": ENDING,
    "high": HIGH,
    "low": LOW,
    "elsewhere": ELSEWHERE,
}
CLASS = "PriorityClass"


@pytest.mark.parametrize(
    "requirement, taken",
    [
        (ScopeRequirement("BestEffort"), {"best effort"}),
        (ScopeRequirement("NotBestEffort"), EVERY.keys() - {"best effort"}),
        (ScopeRequirement("Terminating"), {"ending"}),
        (ScopeRequirement("NotTerminating"), EVERY.keys() - {"ending"}),
        (ScopeRequirement("CrossNamespacePodAffinity"), {"elsewhere"}),
        (ScopeRequirement(CLASS, "Exists"), {"high", "low"}),
        (ScopeRequirement(CLASS, "DoesNotExist"), EVERY.keys() - {"high", "low"}),
        (ScopeRequirement(CLASS, "In", ("high", "middle")), {"high"}),
        (ScopeRequirement(CLASS, "NotIn", ("high", "middle")), EVERY.keys() - {"high"}),
    ],
    ids=lambda value: str(value) if isinstance(value, ScopeRequirement) else "",
)
def test_which_pods_a_requirement_takes(requirement: ScopeRequirement, taken: set[str]) -> None:
    assert not requirement.unreadable
    assert {name for name, scope in EVERY.items() if requirement.takes(scope)} == taken


@pytest.mark.parametrize(
    "requirement, why",
    [
        (ScopeRequirement("VolumeAttributesClass"), "is no scope of pods"),
        (ScopeRequirement(""), "is no scope of pods"),
        (ScopeRequirement("bestEffort"), "is no scope of pods"),
        (ScopeRequirement(CLASS, "in", ("high",)), "must have the operator"),
        (ScopeRequirement(CLASS, ""), "must have the operator"),
        (ScopeRequirement(CLASS, "In"), "In needs values"),
        (ScopeRequirement(CLASS, "NotIn"), "NotIn needs values"),
        (ScopeRequirement(CLASS, "Exists", ("high",)), "Exists takes no values"),
        (ScopeRequirement("BestEffort", "DoesNotExist"), "goes with the operator Exists only"),
        (ScopeRequirement("Terminating", "In", ("a",)), "goes with the operator Exists only"),
    ],
    ids=repr,
)
def test_what_the_api_server_would_not_store_takes_no_pod(requirement: ScopeRequirement, why: str) -> None:
    assert why in requirement.unreadable
    assert not any(requirement.takes(scope) for scope in EVERY.values())


def test_all_requirements_of_a_selector_must_hold() -> None:
    both = make_selector([ScopeRequirement(CLASS, "NotIn", ("low",)), ScopeRequirement("Terminating")])
    assert [name for name, scope in EVERY.items() if selects(both, scope)] == ["ending"]
    assert not selects(both, LOW._replace(terminating=True))
    assert selects(both, HIGH._replace(terminating=True))


def test_a_selector_without_requirements_takes_every_pod() -> None:
    assert all(selects((), scope) for scope in EVERY.values())


def test_contradicting_scopes_take_no_pod() -> None:
    neither = make_selector([ScopeRequirement("BestEffort"), ScopeRequirement("NotBestEffort")])
    assert not any(selects(neither, scope) for scope in EVERY.values())


def test_the_order_in_which_a_selector_is_written_says_nothing() -> None:
    one, other = ScopeRequirement(CLASS, "In", ("a", "b")), ScopeRequirement("BestEffort")
    again = ScopeRequirement(CLASS, "In", ("b", "a", "b"))
    assert make_selector([one, other]) == make_selector([other, again, one])
