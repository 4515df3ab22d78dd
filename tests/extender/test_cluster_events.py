"""Random requests and reloads leave an embedded cluster with what its pods alone would give.

It exists because pods come by /filter, /bind, POST and files, in any order, under colliding names and UIDs. It must not
go over HTTP, which other tests do. Invariant: after every step the cache is what its pods and nodes say, every name
leads to its pod, what came by request outlives a reload, and asking frees nothing.
"""

import json
import random

import pytest

from accounting.answers.report import device_reports
from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.state.cache import Cache
from extender.cluster import Cluster, Heard, Objects, unpacked
from extender.cluster.loading import collect
from extender.config import Settings
from extender.convert.manifests import parse_manifests
from extender.reports.render import pod_entry
from extender.server.api import posted_pod
from extender.verbs.verbs import Verbs
from tests.extender.objects import (
    ALLOCATION,
    Json,
    asks,
    container,
    listed,
    node,
    pod,
    rows,
    status_of,
    terminated,
)
from tests.extender.serving import asked, binding

NODES = ("n1", "n2", "n3")
SEEDS, STEPS = 25, 60


def objects(*manifests: Json) -> Objects:
    return collect(parse_manifests(listed(*manifests).encode(), "--cluster", "test"), Settings())


def random_pod(rng: random.Random) -> Json:
    """Few names and UIDs, so that they collide; any state, and sometimes an annotation that cannot be read."""
    name, where = rng.choice("abcd"), rng.choice((*NODES, None, None))
    inits = [container("i", asks(1, rng.randint(1, 400)))] if rng.random() < 0.4 else []
    app = container("m", asks(rng.choice((1, 1, 2, 0)), rng.randint(1, 500), rng.choice((None, None, 20, 100))))
    made = pod(name, [app], inits=inits, uid=rng.choice((f"{name}1", f"{name}2", "x")), node=where)
    if rng.random() < 0.6:
        cards = [(f"GPU-{where}-{rng.randint(0, 2)}", rng.randint(1, 400), rng.choice((0, 0, 20, 100))) for _ in "xy"]
        good = rows(*([each] for each in cards[: 1 + len(inits)]))
        text = good if rng.random() < 0.85 else rng.choice(("junk:", "GPU-n1-0,NVIDIA,x,0:;"))
        made["metadata"]["annotations"] = {ALLOCATION: text}
    phases = ({"phase": "Pending"}, status_of("Running", terminated("i")), {"phase": "Succeeded"})
    return made | {"status": rng.choice(phases)}


class Scenario:
    """One cluster, and the steps that may happen to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Cluster(Settings(), remembered_pods=3)
        self.verbs = Verbs(self.cluster)
        self.cluster.load(objects(*(node(name, 2) for name in NODES)))

    def step(self) -> None:
        steps = (self.post, self.post, self.delete, self.ask, self.ask, self.reload)
        self.rng.choice(steps)()
        self.check()

    def post(self) -> None:
        new = posted_pod(json.dumps(random_pod(self.rng)).encode(), self.cluster)
        known = self.cluster.pod(new.uid)
        if known is None or known.node is None or _agree(new, known):
            self.cluster.put_pod(new)

    def delete(self) -> None:
        if self.cluster.registry.uids:
            self.cluster.delete_pod(self.rng.choice(sorted(self.cluster.registry.uids)))

    def ask(self) -> None:
        """Filter and prioritize, twice and on a server that remembers nothing; then bind, or not."""
        asking, names = random_pod(self.rng), self.rng.sample((*NODES, "n9"), self.rng.randint(1, 4))
        body = json.dumps(asked(asking, *names)).encode()
        held = dict(self.cluster.cache.pods)
        filtered, scores = self.verbs.filter(body), self.verbs.prioritize(body)
        assert dict(self.cluster.cache.pods) == held
        for verbs in (self.verbs, Verbs(self.cluster)):
            assert (verbs.filter(body), verbs.prioritize(body)) == (filtered, scores)
        said = json.loads(filtered)
        placed = [*said["NodeNames"], *said["FailedNodes"], *said["FailedAndUnresolvableNodes"]]
        assert sorted(placed) == sorted(names)
        if self.rng.random() < 0.8:
            before, name = dict(self.cluster.cache.pods), self.rng.choice(names)
            error = json.loads(self.verbs.bind(json.dumps(binding(asking, name)).encode()))["Error"]
            if error:
                assert dict(self.cluster.cache.pods) == before
            else:
                assert self._pod(asking["metadata"]["uid"]).node == name

    def reload(self) -> None:
        registry = self.cluster.registry
        told = registry.heard_of(Heard.FILE) | registry.heard_of(Heard.QUESTION)
        requested = {uid: registry.pod(uid) for uid in registry.uids - told}
        nodes = [node(name, self.rng.randint(1, 3)) for name in NODES if self.rng.random() < 0.8]
        self.cluster.load(objects(*nodes, *(random_pod(self.rng) for _ in range(self.rng.randint(0, 4)))))
        assert {uid: registry.pod(uid) for uid in requested} == requested

    def check(self) -> None:
        cluster, registry = self.cluster, self.cluster.registry
        known = {each.uid: unpacked(each) for each in registry.kept()}
        assert known.keys() == registry.uids
        for each in known.values():
            holder = registry.holder(each.namespace, each.name)
            assert holder is not None or each.uid in registry.heard_of(Heard.QUESTION)
            assert holder is None or holder.pod.key == each.key
            # A question about a pod takes no name from another pod.
            assert holder is None or holder.pod.uid == each.uid or each.uid in registry.heard_of(Heard.QUESTION)
        bound = {uid for uid, each in known.items() if each.node is not None and not each.terminal}
        assert cluster.cache.pods.keys() == bound
        fresh = Cache()
        for made in cluster.cache.nodes.values():
            fresh.add_node(made)
        for uid in sorted(bound):
            record = cluster.cache.pods[uid]
            fresh.add_pod(record)
            assert record.problem is not None or record == record_pod(known[uid])
        assert device_reports(fresh) == device_reports(cluster.cache)
        assert fresh.used("default") == cluster.cache.used("default")
        for listed_pod in cluster.pods():
            entry = pod_entry(listed_pod, cluster.record(listed_pod))
            shown = {row["uuid"] for part in entry["containers"] for row in part["devices"]}
            assert entry["peak"].keys() == shown
            assert entry["held"].keys() <= shown

    def _pod(self, uid: str) -> Pod:
        found = self.cluster.pod(uid)
        assert found is not None
        return found


def _agree(new: Pod, known: Pod) -> bool:
    return new.node in (None, known.node) and len(new.containers) == len(known.containers)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_cluster_is_what_its_objects_say(seed: int) -> None:
    scenario = Scenario(seed)
    for _ in range(STEPS):
        scenario.step()
