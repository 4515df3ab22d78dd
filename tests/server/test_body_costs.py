"""What reading a verb's body costs the event loop.

It exists because the lease is renewed on the same loop: a body of 85 MiB once held it for 14.7 s. Times are of this
thread's CPU, as multiples of what skipping an ordinary body of the same length costs, so that a busy machine and a slow
one give the same answer. It must not judge answers.
"""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from extender.admission.http import answered
from extender.admission.service import Admission
from extender.cluster import Heard
from extender.convert import convert_pod
from extender.verbs import Verbs
from extender.wire import core_v1
from extender.wire import extender_v1 as wire
from extender.wire.admission_v1 import ReviewError, decode_review
from extender.wire.preemption_v1 import decode_preemption
from tests.admission.reviews import review
from tests.extender.objects import Json, asks, container, node, pod
from tests.extender.serving import asked, make_cluster

_BYTES = 10_000_000
#: Skipping 10 MB of pods takes 7 ms, so this is about 50 ms; 5.6 was the most that was measured.
_TIMES = 8.0


class _Nothing(msgspec.Struct):
    pass


def _pod_text() -> bytes:
    """A pod as a controller makes it: with managed fields, environment and volumes."""
    made = pod("victim", containers=[container(f"c{number}", asks("1", "100")) for number in range(4)])
    made["metadata"]["managedFields"] = [{"fieldsV1": {f"f:field-{number}": {"f:x": {}} for number in range(60)}}]
    for each in made["spec"]["containers"]:
        each["env"] = [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(10)]
    return json.dumps(made, separators=(",", ":")).encode()


def _repeated(head: bytes, part: bytes, tail: bytes) -> bytes:
    return head + b",".join([part] * (_BYTES // (len(part) + 1))) + tail


def _whole_victims() -> bytes:
    node_part = b'"n%d":{"Pods":[' + b",".join([_pod_text()] * 10) + b'],"NumPDBViolations":1}'
    count = _BYTES // len(node_part)
    return (
        b'{"Pod":'
        + _pod_text()
        + b',"NodeNameToVictims":{'
        + b",".join(node_part % number for number in range(count))
        + b"}}"
    )


def _cpu_seconds(call: Callable[[], object]) -> float:
    """The least of three: the others measure what the allocator and the CPU's cache were doing."""
    taken = []
    for _ in range(3):
        started = time.thread_time()
        call()
        taken.append(time.thread_time() - started)
    return min(taken)


@pytest.fixture(scope="module")
def skipping() -> float:
    body = _repeated(b'{"Items":[', _pod_text(), b"]}")
    return _cpu_seconds(lambda: msgspec.json.decode(body, type=_Nothing)) / len(body)


def _check(call: Callable[[], object], length: int, skipping: float) -> None:
    assert _cpu_seconds(call) <= _TIMES * skipping * length


def test_whole_victims_are_read_in_two_passes(skipping: float) -> None:
    """Decoded to dictionaries it was 1.7 s for 10 MB."""
    body = _whole_victims()
    args = decode_preemption(body)
    assert len(args.candidates) > 100
    assert all(len(each.pods()) == 10 and each.pods()[0].raw is not None for each in args.candidates.values())
    _check(lambda: decode_preemption(body), len(body), skipping)


_POD = _pod_text()
_HOSTILE: dict[str, Callable[[], bytes]] = {
    "names of one letter": lambda: _repeated(b'{"Pod":%b,"NodeNames":[' % _POD, b'"a"', b"]}"),
    "node objects without content": lambda: _repeated(b'{"Pod":%b,"Nodes":{"items":[' % _POD, b"{}", b"]}}"),
    "keys that nobody knows": lambda: _repeated(b'{"pod":%b,"nodenames":[],' % _POD, b'"a":1', b"}"),
    "candidates that are null": lambda: _repeated(b'{"Pod":%b,"NodeNameToVictims":{' % _POD, b'"a":null', b"}}"),
    "victims that are null": lambda: _repeated(
        b'{"Pod":%b,"NodeNameToMetaVictims":{"n":{"Pods":[' % _POD, b"null", b"]}}}"
    ),
    "candidates in another spelling": lambda: _repeated(
        b'{"pod":%b,"nodenametovictims":{' % _POD, b'"a":{"pods":[]}', b"}}"
    ),
    "one long number": lambda: b'{"Pod":{"metadata":{"name":%b}},"NodeNames":[]}' % (b"1" * _BYTES),
    "one long fraction": lambda: (
        b'{"Pod":{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":0.%b}}}]}}}' % (b"3" * _BYTES)
    ),
    "one long name": lambda: b'{"Pod":%b,"NodeNames":["%b"]}' % (_POD, b"n" * _BYTES),
    "one long annotation": lambda: (
        b'{"Pod":{"metadata":{"annotations":{"nvidia.com/use-gputype":"%b"}}},"NodeNames":["n1"]}'
        % (b"a," * (_BYTES // 2))
    ),
    "many annotations": lambda: _repeated(b'{"NodeNames":[],"Pod":{"metadata":{"annotations":{', b'"a":""', b"}}}}"),
    "many containers": lambda: _repeated(b'{"NodeNames":["n1"],"Pod":{"spec":{"containers":[', b"{}", b"]}}}"),
    "nested brackets": lambda: b'{"Pod":' + b"[" * _BYTES,
}


@pytest.mark.parametrize("verb", ["filter", "prioritize", "filter_dryrun", "preempt", "bind"])
@pytest.mark.parametrize("kind", _HOSTILE)
def test_no_body_costs_more_by_its_content_than_by_its_length(kind: str, verb: str, skipping: float) -> None:
    verbs, body = Verbs(make_cluster(node("n1"))), _HOSTILE[kind]()

    def answer() -> None:
        with contextlib.suppress(wire.WireError):
            getattr(verbs, verb)(body)

    _check(answer, max(len(body), _BYTES), skipping)


def _asking(count: int, **more: Any) -> Json:  # noqa: ANN401 - as `pod` takes it
    """A pod of so many containers, each with one of a card's slots."""
    return pod("large", containers=[container(f"c{number}", asks("1", "100")) for number in range(count)], **more)


_OBJECTS: dict[str, Callable[[], Json]] = {
    "an allocation of a million cards": lambda: _asking(
        1, allocation="GPU-n1-0,NVIDIA,1,0:" * 1_000_000 + ";", node="n1"
    ),
    "an allocation as long as Kubernetes keeps": lambda: _asking(1, allocation="a,b,1,0:;" * 29_000, node="n1"),
    "an allocation of nothing": lambda: _asking(1, allocation=";" * 262_000, node="n1"),
    "a choice of many models": lambda: _asking(1, annotations={"nvidia.com/use-gputype": "a," * 128_000}),
    "a choice of many cards": lambda: _asking(
        1, annotations={"nvidia.com/nouse-gpuuuid": ",".join(map(str, range(50_000)))}
    ),
    "20,000 containers": lambda: _asking(20_000),
}


@pytest.mark.parametrize("kind", _OBJECTS)
def test_no_object_holds_the_loop(kind: str, skipping: float) -> None:
    """What a person with the right to create a pod can do; 10^6 rows once took 5.2 s."""
    cluster = make_cluster(*(node(f"n{number}", 8) for number in range(100)))
    made = _OBJECTS[kind]()
    verbs, admission, raw = Verbs(cluster), Admission(cluster), json.dumps(made).encode()
    asked_for = json.dumps(asked(made, *(f"n{number}" for number in range(100)))).encode()
    reviewed = json.dumps(review(made)).encode()

    def watched() -> None:
        with contextlib.suppress(msgspec.DecodeError):
            told = convert_pod(msgspec.json.decode(raw, type=core_v1.Pod), cluster.settings)
            cluster.registry.tell(told, Heard.WATCH)

    def filtered() -> None:
        with contextlib.suppress(wire.WireError):
            verbs.filter(asked_for)

    def admitted() -> None:
        with contextlib.suppress(ReviewError):
            answered("validate", admission, admission.validate, decode_review(reviewed))

    for call in (watched, filtered, admitted):
        _check(call, max(len(raw), _BYTES), skipping)
