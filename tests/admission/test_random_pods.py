"""Random pods and random JSON cause no bug; mutating twice equals once; admitted pods are charged correctly."""

import base64
import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from accounting.pod_record import record_pod
from extender.admission.http import answered
from extender.admission.service import Admission
from extender.config import Settings
from extender.convert.pod import convert_pod
from extender.wire import core_v1
from extender.wire.admission_v1 import decode_review
from tests.admission.reviews import cluster_of, patched, pod, review
from tests.extender.objects import asks, container, node, quota, sidecar

_NAMES = ("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
_QUANTITIES = st.sampled_from(
    ["0", "1", "2", "50", "100", "101", "3k", "16Gi", "-1", "1.5", "x", "", None, 7, 0.5, True]
)


def _resources(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    lists = st.dictionaries(st.sampled_from((*_NAMES, "cpu", "nvidia.com/gpumemory")), values, max_size=4)
    return st.fixed_dictionaries({}, optional={"limits": lists, "requests": lists})


def _pods(resources: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    schedulers = st.sampled_from(["default-scheduler", "gpu-scheduler", "volcano", ""])

    @st.composite
    def made(draw: st.DrawFn) -> dict[str, Any]:
        inits = [
            draw(st.sampled_from([container, sidecar]))(f"i{place}", draw(resources))
            for place in range(draw(st.integers(0, 3)))
        ]
        apps = [container(f"a{place}", draw(resources)) for place in range(draw(st.integers(1, 3)))]
        return pod(*apps, inits=inits, scheduler=draw(schedulers))

    return made()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "containers", "initContainers", "resources", "limits", "name", *_NAMES]
            ),
            each,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def _answers(admission: Admission, webhook: str, obj: Any, **given_: Any) -> dict[str, Any]:  # noqa: ANN401
    judge = admission.mutate if webhook == "mutate" else admission.validate
    request = decode_review(json.dumps(review(obj, **given_)).encode())
    raw, ok = answered(webhook, admission, judge, request)
    assert ok
    response: dict[str, Any] = json.loads(raw)["response"]
    assert response["allowed"] or response["status"]["code"] in (400, 403, 422)
    return response


def _mutated(admission: Admission, obj: dict[str, Any]) -> dict[str, Any]:
    response = _answers(admission, "mutate", obj)
    assert response["allowed"]
    return patched(obj, json.loads(base64.b64decode(response.get("patch", "W10="))))


_ADMISSION = Admission(cluster_of(node("n1", 2, memory=100), quota({"limits.nvidia.com/gpumem": "60"}, "team")))


@given(_JSON, st.sampled_from(["CREATE", "UPDATE"]), st.sampled_from(["pods", "pods/status", "pods/binding"]))
def test_no_json_is_a_bug(obj: Any, operation: str, resource: str) -> None:  # noqa: ANN401
    for webhook in ("mutate", "validate"):
        _answers(_ADMISSION, webhook, obj, old=obj, operation=operation, resource=resource)


@given(_pods(_resources(_QUANTITIES)))
def test_no_pod_is_a_bug_and_mutating_twice_is_mutating_once(obj: dict[str, Any]) -> None:
    once = _mutated(_ADMISSION, obj)
    assert _mutated(_ADMISSION, once) == once
    response = _answers(_ADMISSION, "validate", once)
    if not response["allowed"]:
        # Every finding has field, value and reason.
        for text in response["status"]["message"].split("; and ")[0].split("; spec."):
            assert text.count(": ") >= 2


#: Requests whose charge is certain, and none.
_CERTAIN: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.builds(
    asks, st.integers(1, 2), st.integers(1, 40), st.none() | st.integers(0, 100)
)


@given(_pods(_CERTAIN))
def test_what_is_admitted_keeps_the_quota_by_the_rule_of_the_accounting(obj: dict[str, Any]) -> None:
    response = _answers(_ADMISSION, "validate", _mutated(_ADMISSION, obj))
    asked = record_pod(convert_pod(msgspec.convert(obj, core_v1.Pod), Settings())).total_peak.memory
    assert response["allowed"] == (asked <= 60)
    assert response["allowed"] or f"hard 60, used 0, the pod adds {asked}" in response["status"]["message"]
