"""Bodies of requests: kube-scheduler's verbs, and admission reviews.

It must not know the fuzzer. Invariants: a body is answered, or refused as unreadable; an answer has the form that the
wire prescribes, and names only offered nodes; afterwards no card is over-committed.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from extender.admission.http import answered
from extender.admission.service import Admission
from extender.cluster import Cluster
from extender.config import Settings
from extender.convert import convert_node, convert_pod
from extender.verbs import Verbs
from extender.wire import core_v1
from extender.wire.admission_v1 import ReviewError, decode_review
from extender.wire.extender_v1 import WireError, encode_filter_error
from tests.admission.reviews import review as a_review
from tests.extender.objects import bound, node, pod

_PAYLOADS = Path(__file__).resolve().parent.parent / "data" / "payloads"
_LONGEST_SEED = 4096
_VERBS = ("filter", "prioritize", "bind", "preempt", "filter_dryrun")
_NODES = [core_v1.decode_node(msgspec.json.encode(node(name, 2))) for name in ("n1", "n2", "w1")]
_BOUND = msgspec.json.decode(msgspec.json.encode(bound("p", "n1", "GPU-n1-0", 30)), type=core_v1.Pod)
_SETTINGS = Settings()


def _cluster() -> Cluster:
    """A fresh cluster with a waiting pod, whose UID is u."""
    cluster = Cluster(_SETTINGS)
    for each in _NODES:
        cluster.put_node(convert_node(each, _SETTINGS))
    cluster.put_pod(convert_pod(_BOUND, _SETTINGS))
    waiting = pod("w", memory=100)
    waiting["metadata"]["uid"] = "u"
    cluster.put_pod(convert_pod(msgspec.json.decode(msgspec.json.encode(waiting), type=core_v1.Pod), _SETTINGS))
    return cluster


def body(chosen: int, data: bytes) -> None:
    """Send a verb's body. Nodes that pass filter are then given to prioritize and bind."""
    cluster = _cluster()
    verbs, verb = Verbs(cluster), _VERBS[chosen % len(_VERBS)]
    try:
        # What is handed on unread need not be text.
        answer = json.loads(getattr(verbs, verb)(data).decode(errors="replace"))
    except WireError as error:
        encode_filter_error(str(error))
        return
    if verb == "filter":
        _goes_on(verbs, data, answer)
    elif verb == "prioritize":
        assert all(entry.keys() == {"Host", "Score"} and 0 < entry["Score"] <= 10 for entry in answer)
    elif verb == "preempt":
        _names_who_was_offered(data, answer)
    assert not np.any(cluster.cache.snapshot().overcommitted)


def _goes_on(verbs: Verbs, data: bytes, answer: dict[str, object]) -> None:
    assert answer.keys() == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    try:
        verbs.prioritize(data)
    except WireError:
        return
    for waiting in verbs.cluster.waiting():
        names = {"PodName": waiting.name, "PodNamespace": waiting.namespace, "PodUID": waiting.uid, "Node": "n1"}
        try:
            verbs.bind(msgspec.json.encode(names))
        except WireError:
            # Its name is not legal.
            continue


def _names_who_was_offered(data: bytes, answer: dict[str, dict[str, object]]) -> None:
    said = answer["NodeNameToMetaVictims"]
    # What nobody reads need not be text.
    asked = json.loads(data.decode(errors="replace"))
    # Keys match in any case, as in Go; then only the form of the answer is checked.
    offered = {
        name: value
        for key, given in asked.items()
        if isinstance(given, dict) and key.lower() in ("nodenametometavictims", "nodenametovictims")
        for name, value in given.items()
    }
    for name, victims in (said or {}).items():
        assert name in offered, name
        assert victims is not None


def body_seeds() -> Iterator[bytes]:
    """Return short recorded bodies, under every verb that reads their kind."""
    for path in sorted(_PAYLOADS.glob("*.raw")):
        data = path.read_bytes()
        name = path.name.partition("_")[0]
        if len(data) <= _LONGEST_SEED and name in _VERBS:
            yield bytes([_VERBS.index(name)]) + data
    wanted = pod("w", memory=100)
    wanted["metadata"]["uid"] = "u"
    asked = {"Pod": wanted, "Nodes": None, "NodeNames": ["n1", "n2"]}
    for verb in (0, 1):
        yield bytes([verb]) + msgspec.json.encode(asked)
    yield b"\2" + b'{"PodName":"w","PodNamespace":"default","PodUID":"u","Node":"n1"}'
    victims = {"n1": {"Pods": [{"UID": bound("p", "n1", "GPU-n1-0")["metadata"].get("uid", "default/p")}]}}
    yield b"\3" + msgspec.json.encode({"Pod": wanted, "NodeNameToMetaVictims": victims, "NodeNameToVictims": None})
    yield b"\4" + msgspec.json.encode({"Pod": wanted, "Nodes": {"items": [node("n9")]}, "NodeNames": None})


def review(chosen: int, data: bytes) -> None:
    """Send an AdmissionReview to either webhook."""
    admission = Admission(_cluster())
    judge = (admission.mutate, admission.validate)[chosen % 2]
    try:
        asked = decode_review(data)
    except ReviewError:
        return
    answer, ok = answered("fuzz", admission, judge, asked)
    assert ok, answer
    said = json.loads(answer)
    assert said["response"]["uid"] == asked.uid


def review_seeds() -> Iterator[bytes]:
    """Return reviews of pods, bindings and updates."""
    share = pod("p", memory=100)
    for chosen in (b"\0", b"\1"):
        yield chosen + msgspec.json.encode(a_review(share))
        yield chosen + msgspec.json.encode(a_review(share, operation="UPDATE", old=pod("p")))
