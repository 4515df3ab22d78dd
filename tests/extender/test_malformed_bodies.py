"""Every verb answers broken, odd and hostile bodies.

They exist because kube-scheduler throws away every answer but a 200, and treats a crash as an outage for all pods. They
must not depend on the text of an error. Invariant: after each of them the server answers a normal filter as before.
"""

import gzip
import json
from typing import Any

import pytest

from extender.wire.extender_v1 import WireError
from extender.wire.preemption_v1 import decode_preemption
from tests.extender.malformed import VERBS, bodies, wrong
from tests.extender.nesting import NESTED
from tests.extender.objects import MEMORY, Json, asks, container, node, pod
from tests.extender.serving import Answer, Client, asked, binding, serving

GOOD = json.dumps(asked(pod(), "n1", "n2")).encode()
LONG_NUMBER = b"1" + b"0" * 5000
#: The answers that mean "I do not know"; an Error has some text.
NO_VICTIMS = {"NodeNameToMetaVictims": None}


def args(**keys: object) -> bytes:
    """Return valid ExtenderArgs with some keys replaced."""
    return json.dumps(asked(pod(), "n1", "n2") | keys).encode()


def pod_with(**spec: object) -> bytes:
    """Return ExtenderArgs whose pod has these fields in its spec."""
    changed = pod()
    changed["spec"] |= spec
    return args(Pod=changed)


def cases(named: dict[str, bytes]) -> list[Any]:
    return [pytest.param(body, id=name) for name, body in named.items()]


ANY_VERB = {
    "not JSON": b"Pod: {}",
    "truncated": GOOD[: len(GOOD) // 2],
    "empty": b"",
    "only blanks": b" \n",
    "an array": b"[]",
    "a number": b"7",
    "a text": b'"filter"',
    "null": b"null",
    "text after the end": GOOD + b"}",
    "not text": bytes(range(256)),
    "nested too deeply": b'{"Pod":%b}' % NESTED,
}
UNANSWERABLE = ANY_VERB | {
    "no pod": args(Pod=None),
    "pod missing": json.dumps({"Nodes": None, "NodeNames": ["n1"]}).encode(),
    "pod a list": args(Pod=[]),
    "pod a text": args(Pod="p"),
    "neither list": args(NodeNames=None),
    "lists missing": json.dumps({"Pod": pod()}).encode(),
    "node names an object": args(NodeNames={"n1": 1}),
    "a node name null": args(NodeNames=["n1", None]),
    "nodes a list": args(NodeNames=None, Nodes=[node()]),
    "a node null": args(NodeNames=None, Nodes={"items": [None]}),
    "a node without a name": args(NodeNames=None, Nodes={"items": [{"metadata": {}}]}),
    "resources a list": pod_with(containers=[{"name": "main", "resources": []}]),
    "containers an object": pod_with(containers={"main": {}}),
    "a container null": pod_with(containers=[None]),
    "a number among the annotations": args(Pod=pod(annotations={"a": 1})),
    "nested too deeply in an unknown field": GOOD[:-1] + b',"More":%b}' % NESTED,
    "nested too deeply in a quantity": GOOD.replace(b'"100"', NESTED),
    "a node name that is not UTF-8": GOOD.replace(b'"n2"', b'"\xff"'),
    "a pod name that is not UTF-8": GOOD.replace(b'"uid-p"', b'"\xc3\x28"'),
    "half of a surrogate pair": GOOD.replace(b'"n2"', b'"\\ud800"'),
    "a number of 5001 digits": GOOD.replace(b'"100"', LONG_NUMBER),
    "a number beyond floats": GOOD.replace(b'"100"', b"1e400"),
}
INVALID_REQUESTS = {
    "a quantity that is an object": pod_with(containers=[container("main", asks(1, {"value": 1}))]),
    "a quantity that is a list": pod_with(containers=[container("main", asks(1, [100]))]),
    "a quantity that is true": pod_with(containers=[container("main", {"limits": {MEMORY: True}})]),
    "a quantity of 400 digits": GOOD.replace(b'"100"', b"1" + b"0" * 400),
    "a text of 5001 digits": GOOD.replace(b'"100"', b'"%b"' % LONG_NUMBER),
    "a percent sign in a quantity": GOOD.replace(b'"100"', b'"50%d"'),
}
CHANGED_BINDINGS: dict[str, Json] = {
    "no pod name": {"PodName": ""},
    "no namespace": {"PodNamespace": ""},
    "no UID": {"PodUID": ""},
    "no node": {"Node": ""},
    "pod name null": {"PodName": None},
    "node a number": {"Node": 1},
    "percent signs": {"PodName": "50%d", "PodNamespace": "%s", "PodUID": "100%", "Node": "%v"},
}
BAD_BINDINGS = ANY_VERB | {
    name: json.dumps(binding(pod(), "n1") | changed).encode() for name, changed in CHANGED_BINDINGS.items()
}
GOOD_PREEMPTION = json.dumps(
    {"Pod": pod(), "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u1"}, {"UID": "u2"}]}}}
).encode()
BAD_PREEMPTIONS = ANY_VERB | {
    "a victim that is not UTF-8": GOOD_PREEMPTION.replace(b"u2", b"\xc3\x28"),
    "a victim that is half of a surrogate pair": GOOD_PREEMPTION.replace(b"u2", b"\\ud800"),
    "a victim that is nested too deeply": GOOD_PREEMPTION.replace(b'"u2"', NESTED),
    "no pod": json.dumps({"Pod": None, "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}]}}}).encode(),
    "no candidates": json.dumps({"Pod": pod(), "NodeNameToMetaVictims": None, "NodeNameToVictims": None}).encode(),
    "candidates a list": json.dumps({"Pod": pod(), "NodeNameToMetaVictims": ["n1"]}).encode(),
}


@pytest.fixture(params=["", "/scheduler"], ids=["at the root", "under scheduler"])
def prefix(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def check_normal_filter(client: Client) -> None:
    """Check that a new pod gets its normal answer."""
    said = await client.filter(pod("later"), "n1", "n2", "n3")
    assert (said["NodeNames"], said["FailedNodes"], said["Error"]) == (["n1", "n2"], {}, "")
    assert said["FailedAndUnresolvableNodes"].keys() == {"n3"}


def check_error(answer: Answer) -> None:
    """Check a 200 whose Error has a text, is safe in a format string, and does not report a bug."""
    assert answer.status == 200
    error = answer.json()["Error"]
    assert error
    assert "%" not in error
    assert "internal error" not in error


@pytest.mark.parametrize("verb", ["/filter", "/filter-dryrun"])
@pytest.mark.parametrize("body", cases(UNANSWERABLE))
async def test_filter_answers_an_error(prefix: str, verb: str, body: bytes) -> None:
    async with serving(node("n1"), node("n2")) as client:
        answer = await client.post(prefix + verb, body)
        check_error(answer)
        assert set(answer.json().values()) == {None, answer.json()["Error"]}
        await check_normal_filter(client)


@pytest.mark.parametrize("body", cases(UNANSWERABLE))
async def test_prioritize_answers_an_empty_list(prefix: str, body: bytes) -> None:
    async with serving(node("n1"), node("n2")) as client:
        assert await client.post(prefix + "/prioritize", body) == Answer(200, b"[]")
        await check_normal_filter(client)


@pytest.mark.parametrize("body", cases(BAD_BINDINGS))
async def test_bind_answers_an_error(prefix: str, body: bytes) -> None:
    async with serving(node("n1"), node("n2")) as client:
        answer = await client.post(prefix + "/bind", body)
        check_error(answer)
        assert answer.json().keys() == {"Error"}
        assert await client.requested() == {}
        await check_normal_filter(client)


@pytest.mark.parametrize("body", cases(BAD_PREEMPTIONS))
async def test_preempt_answers_a_null_map(prefix: str, body: bytes) -> None:
    async with serving(node("n1"), node("n2")) as client:
        answer = await client.post(prefix + "/preempt", body)
        assert answer.status == 200
        assert answer.json() == NO_VICTIMS
        await check_normal_filter(client)


@pytest.mark.parametrize("name", [name for name in BAD_PREEMPTIONS if name.startswith("a victim")])
def test_a_victim_that_cannot_be_read_is_refused_and_is_no_bug(name: str) -> None:
    """What is skipped at first is read later, and may be no JSON."""
    with pytest.raises(WireError):
        [each.pods() for each in decode_preemption(BAD_PREEMPTIONS[name]).candidates.values()]


@pytest.mark.parametrize("verb", ["/filter", "/filter-dryrun"])
@pytest.mark.parametrize("body", cases(INVALID_REQUESTS))
async def test_a_request_that_cannot_be_used_is_invalid_on_every_node(prefix: str, verb: str, body: bytes) -> None:
    async with serving(node("n1"), node("n2")) as client:
        said = (await client.post(prefix + verb, body)).json()
        assert (said["NodeNames"], said["FailedNodes"], said["Error"]) == ([], {}, "")
        refused = said["FailedAndUnresolvableNodes"]
        assert refused.keys() == {"n1", "n2"}
        assert all(text.startswith("InvalidRequest: ") and "%" not in text for text in refused.values())
        assert (await client.post(prefix + "/prioritize", body)).json() == []
        await check_normal_filter(client)


@pytest.mark.parametrize(
    "body, expected",
    [
        pytest.param(args(NodeNames=[]), [], id="no candidate"),
        pytest.param(args(More={"Deep": [1]}, Error="x"), ["n1", "n2"], id="unknown fields"),
        pytest.param(GOOD.replace(b'"main"', b'"\\u003cmain\\u003e\\u0026"'), ["n1", "n2"], id="escaped signs"),
        pytest.param(b'{"Pod":null,' + GOOD[1:], ["n1", "n2"], id="the same key twice"),
        pytest.param(args(NodeNames=["n2", "n1", "n2"]), ["n2", "n1"], id="the same name twice"),
        pytest.param(GOOD.replace(b'"100"', b"100"), ["n1", "n2"], id="a quantity that is a number"),
        pytest.param(GOOD.replace(b'"100"', b"1e2"), ["n1", "n2"], id="a quantity with an exponent"),
        pytest.param(GOOD[:-1] + b',"More":"\xff"}', ["n1", "n2"], id="a skipped text that is not UTF-8"),
        pytest.param(pod_with(priority=10**30, volumes="none"), ["n1", "n2"], id="odd fields that nobody reads"),
        pytest.param(pod_with(containers=[container("main", asks("0"))]), ["n1", "n2"], id="a zero request"),
        pytest.param(pod_with(containers=None), ["n1", "n2"], id="containers null"),
        pytest.param(args(Pod={"metadata": None, "spec": None, "status": None}), ["n1", "n2"], id="all null"),
        pytest.param(args(Pod={}), ["n1", "n2"], id="an empty pod"),
    ],
)
async def test_what_decodes_gets_its_normal_answer(prefix: str, body: bytes, expected: list[str]) -> None:
    async with serving(node("n1"), node("n2")) as client:
        for verb in ("/filter", "/filter-dryrun"):
            answer = await client.post(prefix + verb, body)
            said = answer.json()
            assert (answer.status, said["NodeNames"], said["Error"]) == (200, expected, "")
            assert (said["Nodes"], said["FailedNodes"], said["FailedAndUnresolvableNodes"]) == (None, {}, {})
        hosts = [host["Host"] for host in (await client.post(prefix + "/prioritize", body)).json()]
        assert len(hosts) == len(set(hosts))
        await check_normal_filter(client)


async def test_with_both_lists_the_names_decide_and_only_their_objects_come_back() -> None:
    body = args(Nodes={"metadata": {}, "items": [node("n1"), node("n4"), node("n2")]}, NodeNames=["n2", "n1", "n3"])
    async with serving(node("n1"), node("n2")) as client:
        said = (await client.post("/filter", body)).json()
        assert (said["NodeNames"], said["FailedAndUnresolvableNodes"].keys()) == (["n2", "n1"], {"n3"})
        assert [item["metadata"]["name"] for item in said["Nodes"]["items"]] == ["n1", "n2"]


@pytest.mark.parametrize("nodes", [{}, {"items": None}, {"metadata": {}, "items": []}], ids=["empty", "null", "none"])
async def test_a_node_list_without_nodes_passes_none(nodes: Json) -> None:
    async with serving(node("n1")) as client:
        said = (await client.post("/filter", args(NodeNames=None, Nodes=nodes))).json()
        assert (said["Nodes"]["items"], said["NodeNames"], said["Error"]) == ([], None, "")


async def test_a_node_object_that_comes_twice_goes_back_once() -> None:
    async with serving(node("n1")) as client:
        said = (await client.post("/filter", args(NodeNames=None, Nodes={"items": [node("n1"), node("n1")]}))).json()
        assert len(said["Nodes"]["items"]) == 1


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "no type at all"]
)
async def test_the_content_type_does_not_matter(prefix: str, kind: str) -> None:
    async with serving(node("n1"), node("n2")) as client:
        answer = await client.send("POST", prefix + "/filter", GOOD, {"Content-Type": kind})
        assert answer == await client.post("/filter", GOOD)
        assert answer.json()["NodeNames"] == ["n1", "n2"]


async def test_a_compressed_body_is_refused_unread() -> None:
    """kube-scheduler never sends one."""
    async with serving(node("n1"), node("n2")) as client:
        answer = await client.send("POST", "/filter", gzip.compress(GOOD), {"Content-Encoding": "gzip"})
        assert answer.status == 415
        await check_normal_filter(client)


async def test_a_body_above_one_mebibyte_is_read() -> None:
    items = [node(f"n{number}", annotations={"filler": "x" * 12_000}) for number in range(100)]
    body = args(NodeNames=None, Nodes={"metadata": {}, "items": items})
    assert len(body) > 2**20
    async with serving(*items) as client:
        said = (await client.post("/filter", body)).json()
        assert (said["Nodes"]["items"], said["Error"]) == (items, "")


@pytest.mark.parametrize("verb", ["filter", "filter-dryrun", "bind"])
async def test_a_body_above_the_limit_is_an_error(prefix: str, verb: str) -> None:
    async with serving(node("n1"), node("n2"), max_body_bytes=4096) as client:
        check_error(await client.post(f"{prefix}/{verb}", b" " * 4097))
        await check_normal_filter(client)


async def test_a_body_above_the_limit_gets_no_scores_and_no_victims(prefix: str) -> None:
    async with serving(node("n1"), node("n2"), max_body_bytes=4096) as client:
        assert await client.post(prefix + "/prioritize", b" " * 4097) == Answer(200, b"[]")
        assert (await client.post(prefix + "/preempt", b" " * 4097)).json() == NO_VICTIMS
        await check_normal_filter(client)


@pytest.mark.parametrize(
    "candidate, expected",
    [
        pytest.param(None, None, id="a null candidate is dropped"),
        pytest.param({"Pods": None, "NumPDBViolations": 2}, {"Pods": [], "NumPDBViolations": 2}, id="null pods"),
        pytest.param({"Pods": []}, {"Pods": [], "NumPDBViolations": 0}, id="no pods"),
        pytest.param({"Pods": [{"UID": "u"}, None]}, {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}, id="a null pod"),
        pytest.param(
            {"Pods": [{"UID": "u"}], "NumPDBViolations": 10**20},
            {"Pods": [{"UID": "u"}], "NumPDBViolations": 0},
            id="a number beyond 64 bits",
        ),
    ],
)
async def test_preempt_never_answers_a_null(candidate: Json | None, expected: Json | None) -> None:
    # For a pod without cards, what is offered comes back.
    asking = pod(containers=[container("main")])
    body = {"Pod": asking, "NodeNameToVictims": None, "NodeNameToMetaVictims": {"n1": candidate}}
    async with serving() as client:
        answer = (await client.post("/preempt", body)).json()
    assert answer == {"NodeNameToMetaVictims": {} if expected is None else {"n1": expected}}


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/filter", 405),
        ("GET", "/scheduler/filter", 405),
        ("PUT", "/bind", 405),
        ("DELETE", "/prioritize", 405),
        ("GET", "/preempt", 405),
        ("PUT", "/api/v1/pods", 405),
        ("DELETE", "/api/v1/pods", 405),
        ("POST", "/api/v1/nodes", 405),
        ("POST", "/livez", 405),
        ("POST", "/", 405),
        ("POST", "/filters", 404),
        ("POST", "/scheduler", 404),
        ("POST", "/scheduler/", 404),
        ("POST", "/scheduler/nope", 404),
        ("POST", "/filter/", 404),
        ("PUT", "/api/v1/pods/default/p", 405),
        ("GET", "/api/v2/pods", 404),
    ],
)
async def test_unknown_routes_and_wrong_methods(method: str, path: str, status: int) -> None:
    async with serving(node("n1"), node("n2")) as client:
        assert (await client.send(method, path, GOOD)).status == status
        await check_normal_filter(client)


@pytest.mark.parametrize("verb", VERBS)
async def test_bodies_made_up_from_a_seed_are_answered(verb: str) -> None:
    """300 bodies are sent to each verb; `make soak` sends 10,000."""
    async with serving(node("n1"), node("n2")) as client:
        for number, body in enumerate(bodies(verb, 1, 300)):
            why = wrong(verb, await client.post(f"/{verb}", body))
            assert not why, (number, why, body)
        assert await client.requested() == {} or verb == "bind"
        await check_normal_filter(client)
