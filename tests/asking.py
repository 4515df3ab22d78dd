"""What filter and allocate say of one node, in values that a test can compare.

It exists so that all tests of the two ask in one way. It must not know what is right. Invariant: a pod is judged on
what the cache holds now, and nothing is booked.
"""

from accounting.answers.allocate import Placement, allocate
from accounting.answers.filter import filter_nodes
from accounting.pod import Pod
from accounting.quota.limits import Budget, QuotaCheck
from accounting.state.cache import Cache
from accounting.status import CODES, Code
from tests.builders import uuids_on


def refusal(cache: Cache, pod: Pod, node: str = "n1", quota: QuotaCheck | None = None) -> Code | None:
    """Return why filter refuses the node; None if it takes it."""
    snapshot = cache.snapshot()
    verdict = filter_nodes(snapshot, pod, snapshot.rows_of([node]), quota=quota or QuotaCheck((), None))
    code = None if verdict.feasible[0] else CODES[int(verdict.codes[0])]
    # A quota refuses wherever the pod goes.
    assert code is not Code.QUOTA_EXCEEDED or verdict.unresolvable[0]
    return code


def placement(cache: Cache, pod: Pod, node: str = "n1", budget: Budget | None = None) -> Placement | None:
    """Return the cards that allocate gives on the node."""
    snapshot = cache.snapshot()
    return allocate(snapshot, pod, snapshot.rows[node], uuids_on(cache, node), budget)
