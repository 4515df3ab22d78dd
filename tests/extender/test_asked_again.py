"""A pod that filter asks about again, unchanged, as an answer from memory does.

It exists because nothing of such a pod is worked out anew, and yet its turn to be forgotten and its name may change. It
must not send requests. Invariant: asking with the same object and with an equal one leave the same behind.
"""

import msgspec
import pytest

from accounting.pod import Pod
from extender.cluster import Cluster, Heard
from extender.config import Settings
from extender.convert import convert_pod
from extender.wire import core_v1
from tests.extender.objects import pod


def _pod(name: str, uid: str) -> Pod:
    return convert_pod(msgspec.convert(pod(name, memory=1, uid=uid), core_v1.Pod, strict=False), Settings())


def _who(cluster: Cluster, name: str) -> str | None:
    found = cluster.pod_named("default", name)
    return None if found is None else found.uid


@pytest.mark.parametrize("same", [True, False])
def test_who_was_asked_about_again_is_forgotten_later(same: bool) -> None:
    cluster = Cluster(Settings(), 2)
    first = _pod("a", "1")
    for each in (first, _pod("b", "2"), first if same else _pod("a", "1"), _pod("c", "3")):
        cluster.remember(each)
    assert [uid for uid in "123" if cluster.pod(uid) is not None] == ["1", "3"]


@pytest.mark.parametrize("same", [True, False])
def test_who_was_asked_about_again_gets_a_name_that_is_free_by_now(same: bool) -> None:
    cluster = Cluster(Settings())
    asked = _pod("a", "2")
    cluster.registry.put(_pod("a", "1"), Heard.REQUEST)
    cluster.remember(asked)
    assert _who(cluster, "a") == "1"
    cluster.delete_pod("1")
    cluster.remember(asked if same else _pod("a", "2"))
    assert _who(cluster, "a") == "2"
