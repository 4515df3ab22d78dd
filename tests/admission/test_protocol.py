"""Reviews that are malformed, dry runs, or about other objects; and the metrics of every decision."""

import json
from typing import Any

import pytest

from tests.admission.reviews import Webhooks, admitting, limits, pod, review
from tests.extender.nesting import NESTED, SAID
from tests.extender.objects import Json, asks, container

PATHS = ["/mutate", "/validate"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "body, said",
    [
        (b"", "request body: (empty): "),
        (b"{", "request body: {: "),
        (b"not json", "request body: not json: "),
        (b"[]", "request body: []: "),
        (b"null", "request body: null: "),
        (b"\xff\xfe", "request body: "),
        (b"{}", "apiVersion, kind: (none) (none): must be admission.k8s.io/v1 AdmissionReview"),
        (
            b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}',
            "apiVersion, kind: admission.k8s.io/v1beta1",
        ),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"Pod"}', "apiVersion, kind: admission.k8s.io/v1 Pod: must be"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "request: null: "),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":3}', "request body: "),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}', "request.uid: (empty): "),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}', "request body: "),
        (b'{"a":%b}' % NESTED, f'request body: {{"a":{"[" * 35}...: {SAID}'),
    ],
)
async def test_what_is_no_review_gets_400_with_field_and_value(
    webhooks: Webhooks, path: str, body: bytes, said: str
) -> None:
    status, answer = await webhooks.send(path, body)
    assert status == 400
    assert answer.decode().startswith(said)
    assert answer.count(b"\n") == 1


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "obj",
    [None, 3, [], "pod", {"spec": 3}, {"spec": {"containers": {}}}, {"spec": {"containers": [3]}}, {"metadata": []}],
)
async def test_an_object_that_does_not_decode_is_a_clean_denial(webhooks: Webhooks, path: str, obj: Any) -> None:  # noqa: ANN401
    answer = await webhooks.ask(path, review(obj))
    assert (answer.allowed, answer.code) == (False, 400)
    assert answer.message.startswith("request.object: ")


async def test_an_update_without_the_old_object_is_a_clean_denial(webhooks: Webhooks) -> None:
    answer = await webhooks.validate(pod(), operation="UPDATE")
    assert answer.message == "request.oldObject: null: the request has no object"


@pytest.mark.parametrize("path", PATHS)
async def test_a_pod_with_nulls_is_read(webhooks: Webhooks, path: str) -> None:
    obj: Json = {"metadata": None, "spec": {"containers": None, "initContainers": None}, "status": None}
    assert (await webhooks.ask(path, review(obj))).allowed
    obj = {"spec": {"containers": [{"name": None, "resources": {"limits": None, "requests": None}, "env": None}]}}
    assert (await webhooks.ask(path, review(obj))).allowed
    assert (await webhooks.ask(path, review({}))).allowed


@pytest.mark.parametrize("path", PATHS)
async def test_what_is_not_judged_is_allowed(webhooks: Webhooks, path: str) -> None:
    asking = pod(container("a", limits(count="-1")))
    for resource in ("pods/resize", "pods/eviction", "pods/log", "deployments", "nodes"):
        assert (await webhooks.ask(path, review(asking, resource=resource, operation="UPDATE"))).allowed
    for operation in ("DELETE", "CONNECT", ""):
        assert (await webhooks.ask(path, review(None, operation=operation))).allowed
    other = review(asking)
    other["request"]["resource"]["group"] = "example.com"
    assert (await webhooks.ask(path, other)).allowed
    other["request"]["resource"] = None
    assert (await webhooks.ask(path, other)).allowed


@pytest.mark.parametrize("path", PATHS)
async def test_unknown_routes_and_wrong_methods(webhooks: Webhooks, path: str) -> None:
    async with webhooks.session.get(path) as response:
        assert response.status == 405
    async with webhooks.session.post(f"{path}/x") as response:
        assert response.status == 404


async def test_a_bug_denies_and_the_next_request_is_answered(
    webhooks: Webhooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("bug")

    with monkeypatch.context() as patch:
        patch.setattr(webhooks.cluster, "quota_check", broken)
        answer = await webhooks.validate(pod(container("a", asks(1, 5))))
    assert (answer.allowed, answer.code) == (False, 500)
    assert "bug" not in answer.message
    assert (await webhooks.validate(pod(container("a", asks(1, 5))))).allowed


async def test_every_decision_is_counted() -> None:
    async with admitting() as webhooks:
        share = pod(container("a", asks(1, 5)))
        await webhooks.validate(share)
        await webhooks.validate(share, dry_run=True)
        await webhooks.validate(pod())
        await webhooks.validate(pod(container("a", limits(count="-1"))))
        await webhooks.ask("/mutate", review(pod(container("a", limits(memory="5")))))
        await webhooks.ask("/mutate", review(share))
        await webhooks.send("/mutate", b"{")
        async with webhooks.session.get("/metrics") as response:
            text = await response.text()
    name = "gpu_extender_admission_decisions_total"
    counted = {line.partition(" ")[0] for line in text.splitlines() if line.startswith(name)}
    assert counted == {
        f'{name}{{decision="{decision}",dry_run="{dry}",webhook="{webhook}",why="{why}"}}'
        for webhook, decision, why, dry in (
            ("validate", "allowed", "Admitted", "false"),
            ("validate", "allowed", "Admitted", "true"),
            ("validate", "allowed", "NotConcerned", "false"),
            ("validate", "denied", "InvalidRequest", "false"),
            ("mutate", "allowed", "Mutated", "false"),
            ("mutate", "allowed", "Unchanged", "false"),
            ("mutate", "malformed", "MalformedReview", "false"),
        )
    }
    assert 'gpu_extender_request_duration_seconds_count{result="ok",verb="validate"} 4.0' in text


async def test_a_body_of_a_megabyte_is_read(webhooks: Webhooks) -> None:
    obj = pod(container("a", asks(1, 5)), annotations={"note": "x" * 2**20})
    assert (await webhooks.validate(obj)).allowed


async def test_denials_have_the_shape_of_a_status(webhooks: Webhooks) -> None:
    answer = await webhooks.validate(pod(container("a", asks(1, 30_000))))
    assert answer.raw["status"].keys() == {"status", "code", "reason", "message"}
    assert answer.raw["status"]["status"] == "Failure"
    assert answer.raw["status"]["reason"] == "Forbidden"
    assert json.dumps(answer.raw)
