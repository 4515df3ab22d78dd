"""Preempt over HTTP returns which of the offered nodes, with which victims.

It exists because kube-scheduler deletes whatever the answer names. It must not know how victims are found. Invariants:
only offered nodes come back, and no null; a victim was offered or is a pod of lower priority on that node.
"""

from typing import Any

import pytest

from tests.extender.objects import Json, asks, bound, container, node, pod, quota
from tests.extender.recorded import Recorded, recorded
from tests.extender.serving import Client, serving

HIGH = 1000
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def low(name: str, on: str, card: int = 0, memory: int = 800, priority: int = 0, **other: Any) -> Json:  # noqa: ANN401
    """A running pod with a share of one of a node's cards."""
    return with_spec(bound(name, on, f"GPU-{on}-{card}", memory, **other), priority=priority)


def with_spec(made: Json, **fields: object) -> Json:
    made["spec"] |= fields
    return made


def high(memory: int = 500, **spec: object) -> Json:
    return with_spec(pod("high", memory=memory), priority=HIGH, **spec)


def body(preemptor: Json, offered: dict[str, list[str]], violations: int = 0) -> Json:
    """Return the question with UIDs only."""
    meta = {
        name: {"Pods": [{"UID": f"uid-{each}"} for each in pods], "NumPDBViolations": violations}
        for name, pods in offered.items()
    }
    return {"Pod": preemptor, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta}


async def answer(client: Client, question: Json) -> dict[str, list[str]]:
    said = (await client.post("/preempt", question)).json()
    assert said.keys() == {"NodeNameToMetaVictims"}
    return {
        name: [each["UID"].removeprefix("uid-") for each in victims["Pods"]]
        for name, victims in said["NodeNameToMetaVictims"].items()
    }


async def test_victims_are_added_where_the_cards_need_them_and_nodes_dropped_where_nobody_helps() -> None:
    objects = [
        *(node(name) for name in ("n1", "n2", "n3")),
        *(low("offered", "n1", memory=100), low("needed", "n1", memory=850)),
        low("dear", "n2", priority=HIGH),
        low("leaving", "n3"),
    ]
    objects[-1]["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    async with serving(*objects) as client:
        offered = {"n1": ["offered"], "n2": ["dear"], "n3": ["leaving"], "nowhere": ["ghost"]}
        assert await answer(client, body(high(), offered)) == {"n1": ["needed", "offered"]}


async def test_both_encodings_get_the_same_answer_and_an_empty_list_is_filled() -> None:
    objects = [node("n1"), low("a", "n1")]
    async with serving(*objects) as client:
        assert await answer(client, body(high(), {"n1": ["a"]})) == {"n1": ["a"]}
        assert await answer(client, body(high(), {"n1": []})) == {"n1": ["a"]}
        whole = {"Pod": high(), "NodeNameToMetaVictims": None}
        full = whole | {"NodeNameToVictims": {"n1": {"Pods": [objects[1]], "NumPDBViolations": 0}}}
        assert await answer(client, full) == {"n1": ["a"]}
        assert await answer(client, whole | {"NodeNameToVictims": {"n1": {"Pods": None}}}) == {"n1": ["a"]}
        mixed = full | body(high(), {"n1": []})
        assert await answer(client, mixed) == {"n1": ["a"]}


async def test_a_uid_that_is_not_known_stays_and_helps_nobody() -> None:
    async with serving(node("n1"), node("n2"), low("a", "n1"), low("b", "n2", priority=HIGH)) as client:
        assert await answer(client, body(high(), {"n1": ["a", "ghost"]})) == {"n1": ["a", "ghost"]}
        # Where nobody helps, an unknown pod is no answer either, and a pod is a victim on its own node only.
        assert await answer(client, body(high(), {"n2": ["ghost"]})) == {}
        assert await answer(client, body(high(), {"n2": ["a"]})) == {}
        assert await answer(client, body(high(), {"n1": ["ghost"]})) == {"n1": ["a", "ghost"]}


async def test_with_both_encodings_in_one_body_that_of_uids_decides() -> None:
    objects = [node("n1"), node("n2"), low("a", "n1"), low("b", "n2")]
    async with serving(*objects) as client:
        whole = {"n2": {"Pods": [objects[3]], "NumPDBViolations": 0}}
        question = body(high(), {"n1": ["a"]}) | {"NodeNameToVictims": whole}
        assert await answer(client, question) == {"n1": ["a"]}
        # Then nothing is offered, whatever the other map says.
        assert await answer(client, question | {"NodeNameToMetaVictims": {}}) == {}
        assert await answer(client, question | {"NodeNameToMetaVictims": None}) == {"n2": ["b"]}
        # Each list may mix known and unknown pods.
        pods: list[Json | None] = [{"UID": "uid-a"}, objects[2], None, {}, {"metadata": {}}, {"UID": ""}]
        for key in ("NodeNameToMetaVictims", "NodeNameToVictims"):
            assert await answer(client, {"Pod": high(), key: {"n1": {"Pods": pods}}}) == {"n1": ["a"]}


async def test_among_thousands_of_nodes_those_that_help_are_found() -> None:
    # Most nodes are not known, and on all but two of the others the victims do not help.
    helped, in_vain = [f"n{at}" for at in (7, 301)], [f"n{at}" for at in range(400, 440)]
    objects = [node(name) for name in (*helped, *in_vain)]
    objects += [low(f"a-{name}", name) for name in helped]
    objects += [low(f"a-{name}", name, priority=HIGH) for name in in_vain]
    offered = {f"n{at}": [f"a-n{at}", *(f"ghost-{at}-{number}" for number in range(19))] for at in range(5_000)}
    async with serving(*objects) as client:
        assert await answer(client, body(high(), offered)) == {name: offered[name] for name in helped}


async def test_a_node_that_has_room_already_is_no_answer() -> None:
    async with serving(node("n1"), low("a", "n1", memory=100)) as client:
        assert await answer(client, body(high(), {"n1": ["a"], "n2": []})) == {"n1": ["a"]}
        assert await answer(client, body(high(), {"n1": []})) == {}


async def test_an_offered_victim_is_spared_where_the_node_provably_has_room() -> None:
    one = node("n1", 2, allocatable="2")
    one["status"]["allocatable"] |= {"pods": "10"}
    objects = [one, low("small", "n1", 0, memory=100), low("large", "n1", 1, memory=900, priority=1)]
    big = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    async with serving(*objects) as client:
        offered = {"n1": ["small"]}
        assert await answer(client, body(high(950), offered)) == {"n1": ["small"]}
        objects[1]["spec"]["containers"][0]["resources"] = asks(1, 100)
    objects[1] = low("small", "n1", 0, memory=10)
    objects[0]["metadata"]["annotations"]["nvidia.com/cordon"] = ""
    objects[2] = low("large", "n1", 1, memory=900, priority=0)
    preemptor = high(995)
    preemptor["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": "GPU-n1-1"}
    async with serving(*objects) as client:
        # For kube-scheduler the count of `large` is enough, and only its card is wanted.
        assert await answer(client, body(preemptor, offered)) == {"n1": ["large"]}
        held_by_a_volume = with_spec(dict(preemptor), **big)
        assert await answer(client, body(held_by_a_volume, offered)) == {"n1": ["large", "small"]}


TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"affinity": {"podAffinity": {REQUIRED: [TERM]}}}, id="affinity"),
        pytest.param({"affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}}, id="anti-affinity"),
        pytest.param({"hostPort": 8080}, id="a host port"),
        pytest.param(
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            id="a hard topology spread",
        ),
        pytest.param({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, id="a volume"),
        pytest.param({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}, id="a device claim"),
    ],
)
async def test_an_offered_victim_is_not_spared_where_more_than_resources_may_decide(more: Json) -> None:
    one = node("n1", 2, allocatable="3")
    one["status"]["allocatable"] |= {"pods": "10"}
    objects = [one, low("offered", "n1", 0, memory=10), low("other", "n1", 1, memory=900)]
    plain, asking = high(995), high(995)
    for each in (plain, asking):
        each["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": "GPU-n1-1"}
    if "hostPort" in more:
        asking["spec"]["containers"][0]["ports"] = [{"containerPort": 80} | more]
    else:
        asking["spec"] |= more
    async with serving(*objects) as client:
        assert await answer(client, body(plain, {"n1": ["offered"]})) == {"n1": ["other"]}
        found = await answer(client, body(asking, {"n1": ["offered"]}))
        assert {name: sorted(pods) for name, pods in found.items()} == {"n1": ["offered", "other"]}
    if "affinity" in more:
        # A pod that is there already may keep others away.
        objects[2]["spec"] |= more
        async with serving(*objects) as client:
            found = await answer(client, body(plain, {"n1": ["offered"]}))
            assert {name: sorted(pods) for name, pods in found.items()} == {"n1": ["offered", "other"]}


@pytest.mark.parametrize(
    "spared",
    [
        pytest.param({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "d"}]}}, id="DaemonSet"),
        pytest.param({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, id="mirror"),
        pytest.param({"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}}, id="static"),
        pytest.param({"spec": {"priorityClassName": "system-cluster-critical"}}, id="cluster-critical"),
        pytest.param({"spec": {"priorityClassName": "system-node-critical"}}, id="node-critical"),
        pytest.param({"spec": {"priority": HIGH}}, id="the same priority"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-11-30T10:00:00Z"}}, id="leaving"),
    ],
)
async def test_who_is_never_a_victim(spared: Json) -> None:
    victim = low("a", "n1")
    for part, fields in spared.items():
        for key, value in fields.items():
            victim[part][key] = victim[part][key] | value if isinstance(value, dict) else value
    async with serving(node("n1"), victim) as client:
        assert await answer(client, body(high(), {"n1": []})) == {}
        assert await answer(client, body(high(), {"n1": ["a"]})) == {}


async def test_questions_and_victims_are_counted() -> None:
    async with serving(node("n1"), low("a", "n1"), low("b", "n1", memory=100)) as client:
        await answer(client, body(high(), {"n1": ["a", "b"]}))
        await answer(client, body(high(5000), {"n1": ["a"]}))
        await answer(client, body(pod("web", [container("main")]), {"n1": ["a"]}))
        text = (await client.send("GET", "/metrics")).body.decode()
    for line in (
        'gpu_extender_preemptions_total{result="victims"} 1.0',
        'gpu_extender_preemptions_total{result="none"} 1.0',
        'gpu_extender_preemptions_total{result="echoed"} 1.0',
        "gpu_extender_preemption_victims_offered_total 3.0",
        "gpu_extender_preemption_victims_named_total 2.0",
    ):
        assert line in text


async def test_a_pod_that_never_preempts_and_one_without_priority_get_nobody() -> None:
    async with serving(node("n1"), low("a", "n1")) as client:
        assert await answer(client, body(high(preemptionPolicy="Never"), {"n1": ["a"]})) == {}
        assert await answer(client, body(pod("same", memory=500), {"n1": []})) == {}


async def test_a_pod_without_cards_gets_back_what_was_offered() -> None:
    web = with_spec(pod("web", [container("main")]), priority=HIGH)
    async with serving(node("n1"), low("a", "n1")) as client:
        assert await answer(client, body(web, {"n1": ["a", "ghost"], "n9": []})) == {"n1": ["a", "ghost"], "n9": []}


async def test_the_violations_are_those_of_the_answered_set() -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0},
    }
    guarded = low("guarded", "n1")
    guarded["metadata"]["labels"] = {"app": "web"}
    objects = [node("n1", 2), guarded, low("free", "n1", 1, priority=5), budget]
    async with serving(*objects) as client:
        question = body(high(), {"n1": ["guarded"]}, violations=1)
        said = (await client.post("/preempt", question)).json()["NodeNameToMetaVictims"]
        assert said == {"n1": {"Pods": [{"UID": "uid-guarded"}], "NumPDBViolations": 1}}
        said = (await client.post("/preempt", body(high(), {"n1": []}, violations=9))).json()["NodeNameToMetaVictims"]
        assert said == {"n1": {"Pods": [{"UID": "uid-free"}], "NumPDBViolations": 0}}


async def test_a_pod_over_its_quota_is_not_helped_by_other_namespaces() -> None:
    theirs, own = low("theirs", "n1", namespace="b"), low("own", "n1", 1, priority=5)
    limit = quota({"requests.nvidia.com/gpumem": "1000"})
    async with serving(node("n1", 2), theirs, own, limit) as client:
        assert await answer(client, body(high(), {"n1": []})) == {"n1": ["own"]}
    async with serving(node("n1", 2), theirs, limit, low("other", "n1", 1, priority=HIGH)) as client:
        assert await answer(client, body(high(), {"n1": []})) == {}


@pytest.mark.parametrize("sent", recorded("preempt"))
async def test_recorded_questions_are_answered_from_what_was_offered(sent: Recorded) -> None:
    offered: Json = sent.body["NodeNameToMetaVictims"] or sent.body["NodeNameToVictims"]
    async with serving(*(node(name, memory=10) for name in offered)) as client:
        for payload in (sent.raw, sent.lower_cased):
            said = (await client.post("/preempt", payload)).json()["NodeNameToMetaVictims"]
            assert said.keys() <= offered.keys()
            for name, victims in said.items():
                uids = {each.get("UID") or each["metadata"]["uid"] for each in offered[name]["Pods"]}
                assert {each["UID"] for each in victims["Pods"]} <= uids


async def test_what_comes_free_is_kept_for_the_nominated_pod() -> None:
    leaving = low("leaving", "n1", memory=900)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    nominated = high(600)
    nominated["status"]["nominatedNodeName"] = "n1"
    async with serving(node("n1"), leaving, nominated) as client:
        small, equal, higher = (
            with_spec(pod(name, memory=500), priority=priority)
            for name, priority in (("small", HIGH - 1), ("equal", HIGH), ("higher", HIGH + 1))
        )

        async def fits(made: Json) -> bool:
            said = (await client.post("/filter", {"Pod": made, "Nodes": None, "NodeNames": ["n1"]})).json()
            assert said["Error"] == ""
            return bool(said["NodeNames"])

        tiny = pod("tiny", memory=100)
        assert [await fits(each) for each in (tiny, small, higher)] == [True, False, False]
        await client.delete("leaving")
        # 1000 MiB are free, and 600 of them are reserved.
        assert [await fits(each) for each in (tiny, small, equal, higher)] == [True, False, False, True]
        assert await fits(nominated)
        bind = {"PodName": "small", "PodNamespace": "default", "PodUID": "uid-small", "Node": "n1"}
        assert "InsufficientMemory" in (await client.post("/bind", bind)).json()["Error"]
        # Once the pod is bound it holds its share, and nothing more is reserved.
        await client.post("/bind", bind | {"PodName": "high", "PodUID": "uid-high"})
        assert [await fits(each) for each in (small, pod("rest", memory=400))] == [False, True]
