"""A cluster's events are typed and come in order, and none is made without a subscriber."""

from accounting.answers import Claim, Claims
from extender.cluster import Cluster, collect
from extender.cluster.events import Events, Freed, NodeChanged, PluginChanged, QuotaChanged, Topic
from extender.config import Settings
from extender.convert import parse_manifests
from tests.builders import app, make_pod
from tests.extender.objects import listed, node, quota


def test_an_event_that_nobody_listens_to_is_not_made() -> None:
    made: list[str] = []
    topic = Topic(made.append)
    topic.publish("nobody")
    assert made == []
    topic.subscribe(lambda _: None)
    topic.publish("somebody")
    assert made == ["somebody"]


def test_subscribers_are_called_in_the_order_in_which_they_subscribed() -> None:
    topic, told = Topic(Freed), list[tuple[str, str]]()
    topic.subscribe(lambda event: told.append(("first", event.node)), lambda event: told.append(("second", event.node)))
    topic.subscribe(lambda event: told.append(("third", event.node)))
    topic.publish("n1")
    assert told == [("first", "n1"), ("second", "n1"), ("third", "n1")]


def test_every_topic_makes_the_type_that_bears_its_name() -> None:
    for name, topic in vars(Events()).items():
        assert topic._kind.__name__ == "".join(word.capitalize() for word in name.split("_"))


def test_only_what_changes_is_published() -> None:
    cluster, told = Cluster(Settings()), list[object]()
    for topic in (cluster.events.node_changed, cluster.events.quota_changed, cluster.events.plugin_changed):
        topic.subscribe(told.append)
    objects = collect(
        parse_manifests(listed(node("n1"), quota({"limits.nvidia.com/gpu": "1"})).encode(), "test", "-"), Settings()
    )
    (one,), (limit,) = objects.nodes, objects.quotas
    for _ in range(2):
        cluster.put_node(one)
        cluster.put_quota(limit)
    assert told == [NodeChanged("n1"), QuotaChanged(limit.namespace)]
    vendor = cluster.settings.vendor.key
    assert cluster.plugins.note("n1", vendor, alive=False)
    assert not cluster.plugins.note("n1", vendor, alive=False)
    cluster.remove_quota(limit.namespace, limit.name)
    assert told[2:] == [PluginChanged("n1", vendor, alive=False), NodeChanged("n1"), QuotaChanged(limit.namespace)]


def test_claims_end_by_age_and_say_so() -> None:
    claims = Claims(max_age_seconds=1)
    cluster, told = Cluster(Settings(), claims=claims), list[str]()
    cluster.events.claimed.subscribe(lambda event: told.append(f"+{event.uid}"))
    cluster.events.unclaimed.subscribe(lambda event: told.append(f"-{event.uid}"))
    registry = cluster.registry
    for number, uid in enumerate("abc"):
        cluster.remember(make_pod(uid, [app(1)])._replace(uid=uid))
        registry.claim(uid, Claim("n1", (), 1), now=float(number))
    registry.expire_claims(2.5)
    registry.end_claim("c")
    registry.end_claim("c")
    assert told == ["+a", "+b", "+c", "-a", "-b", "-c"]
    assert not len(claims)
