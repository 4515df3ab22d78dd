"""filter, then changes, then prioritize: the scores are those of a process that did not see filter.

They exist because kube-scheduler binds the last pod between the two, so the state has nearly always changed. They must
not look into memories. Invariant: a second process without memories shares the cluster and answers both verbs.
"""

import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.cluster import Cluster
from extender.config import Settings
from extender.convert.node import convert_node, convert_quota
from extender.convert.pod import convert_pod
from extender.verbs.verbs import Verbs
from extender.wire import core_v1
from tests.extender.objects import COUNT, Json, asks, bound, card, container, node, pod, quota

#: More than half of the rows that a cache has room for at first, as in a large cluster.
NODES = tuple(f"n{number:02}" for number in range(40))


def make_cluster(*, cards: int = 2) -> Cluster:
    cluster = Cluster(Settings())
    for name in NODES:
        put_node(cluster, node(name, cards))
    return cluster


def put_node(cluster: Cluster, made: Json) -> None:
    cluster.put_node(convert_node(msgspec.convert(made, core_v1.Node), cluster.settings))


def put_pod(cluster: Cluster, made: Json) -> None:
    cluster.put_pod(convert_pod(msgspec.convert(made, core_v1.Pod), cluster.settings))


def put_quota(cluster: Cluster, made: Json) -> None:
    cluster.put_quota(convert_quota(msgspec.convert(made, core_v1.ResourceQuota), cluster.settings))


def question(asking: Json, names: Sequence[str]) -> bytes:
    return json.dumps({"Pod": asking, "Nodes": None, "NodeNames": list(names)}, separators=(",", ":")).encode()


def filtered(verbs: Verbs, asking: Json) -> list[str]:
    names: list[str] = json.loads(verbs.filter(question(asking, NODES)))["NodeNames"]
    return names


#: A pod with this share of one of a node's cards comes to the node, or leaves it.
changes = st.tuples(
    st.sampled_from(("a", "b", "c", "p")),
    st.sampled_from(NODES[:6]),
    st.sampled_from((0, 1)),
    st.sampled_from((0, 400, 700, 1000)),
    st.sampled_from((0, 100)),
)


@given(
    before=st.lists(changes, max_size=6),
    between=st.lists(changes, max_size=4),
    memory=st.sampled_from((300, 600)),
    policy=st.sampled_from(("binpack", "spread")),
    limit=st.sampled_from((None, None, "3", "1200")),
)
def test_prioritize_after_changes_is_prioritize_without_a_filter(
    before: list[tuple[str, str, int, int, int]],
    between: list[tuple[str, str, int, int, int]],
    memory: int,
    policy: str,
    limit: str | None,
) -> None:
    cluster = make_cluster()
    verbs = Verbs(cluster)
    if limit is not None:
        put_quota(cluster, quota({"requests." + (COUNT if len(limit) == 1 else "nvidia.com/gpumem"): limit}))
    for change in before:
        happen(cluster, *change)
    asking = pod("p", memory=memory, annotations={"hami.io/node-scheduler-policy": policy})
    names = filtered(verbs, asking)
    for change in between:
        happen(cluster, *change)
    assert verbs.prioritize(question(asking, names)) == Verbs(cluster).prioritize(question(asking, names))


def happen(cluster: Cluster, name: str, where: str, at: int, memory: int, cores: int) -> None:
    """A pod of this name now holds that much; with 0 it ends."""
    known = cluster.pod_named("default", name)
    if known is not None:
        cluster.delete_pod(known.uid)
    if memory:
        put_pod(cluster, bound(name, where, f"GPU-{where}-{at}", memory, cores=cores))


def test_nodes_that_changed_are_judged_again() -> None:
    cluster = make_cluster(cards=1)
    verbs = Verbs(cluster)
    names = filtered(verbs, pod("p", memory=600))
    put_pod(cluster, bound("a", "n02", "GPU-n02-0", 600))
    put_pod(cluster, bound("b", "n04", "GPU-n04-0", 100))
    scores = json.loads(verbs.prioritize(question(pod("p", memory=600), names)))
    assert [score["Host"] for score in scores[:4]] == ["n04", "n00", "n01", "n03"]


@pytest.mark.parametrize(
    "kind", ["a node changes", "a node is gone", "a quota comes", "the pod is booked", "fewer names"]
)
def test_whatever_comes_between_is_seen(kind: str) -> None:
    cluster = make_cluster(cards=1)
    verbs, asking = Verbs(cluster), pod("p", memory=600)
    names = filtered(verbs, asking)
    before = json.loads(Verbs(cluster).prioritize(question(asking, names)))
    if kind == "a node changes":
        put_node(cluster, node("n00", [card("GPU-n00-0", memory=100)]))
    elif kind == "a node is gone":
        cluster.remove_node("n00")
    elif kind == "a quota comes":
        put_quota(cluster, quota({f"requests.{COUNT}": "0"}))
    elif kind == "the pod is booked":
        put_pod(cluster, pod("p", [container("main", asks(1, 600))], node="n00", allocation="GPU-n00-0,NVIDIA,600,0:;"))
    else:
        names = names[1:]
    after = verbs.prioritize(question(asking, names))
    assert after == Verbs(cluster).prioritize(question(asking, names))
    # A pod's own booking never counts against it.
    assert (json.loads(after) == before) == (kind == "the pod is booked")


def test_nothing_is_judged_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict is kept for a demand that needed the exact search; a second search would take as long again."""
    cluster = make_cluster(cards=1)
    verbs, asking = Verbs(cluster), pod("p", memory=600)
    names = filtered(verbs, asking)
    monkeypatch.setattr(Cluster, "filter", lambda *_: pytest.fail("judged again"))
    assert json.loads(verbs.prioritize(question(asking, names)))[0]["Host"] == "n00"
