"""An embedded cluster that counts whole devices.

It exists because tests of several packages use one. It must not judge. Invariant: budgets are those that are given.
"""

from accounting.holders import Budgets
from extender.cluster.cluster import Cluster
from extender.cluster.loading import collect
from extender.config import Settings
from extender.convert.manifests import parse_manifests
from tests.extender.objects import Json, listed
from tests.extender.vmis import K


def make_raw_cluster(*objects: Json, budgets: Budgets | None = None) -> Cluster:
    """A cluster of these objects, as from a file."""
    settings = Settings(raw_keys=(K,))
    cluster = Cluster(settings)
    cluster.load(collect(parse_manifests(listed(*objects).encode(), "--cluster", "test"), settings))
    cluster.set_raw_budgets(budgets or {})
    return cluster
