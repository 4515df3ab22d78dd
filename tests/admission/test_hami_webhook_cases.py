"""HAMi's own cases for its webhook, over HTTP: groups webhook_quota and request_parse, each case by name.

Where the design overrules HAMi the right value is a denial, whose reason stands in the test's id.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accounting.vendor import NVIDIA, Vendor
from tests.admission.reviews import admitting, pod
from tests.extender.objects import bound, container, node, quota, sidecar

_CASES = json.loads((Path(__file__).parents[1] / "data" / "cases" / "hami_cases.json").read_text())["cases"]
#: Case -> why it is denied here and not in HAMi.
DENIED = {
    "gr4": "a percentage over 100",
    "gr5": "a percentage over 100",
    "gr6": "a percentage over 100",
    "gr12": "a negative percentage",
    "gr14": "memory over int32",
    "gr15": "memory over int32",
    "gr17": "memory over int32 after the factor",
}
_NAMES = {"mem": "gpumem", "cores": "gpucores"}


def _group(name: str) -> list[Any]:
    cases = [case for case in _CASES if case["group"] == name]
    return [pytest.param(case, id=f"{case['id']} {DENIED.get(case['id'], '')}".strip()) for case in cases]


def _resources(request: dict[str, Any] | None, vendor: Vendor) -> dict[str, Any]:
    """Return a parsed request as a user writes it: memory in the user's units."""
    if request is None:
        return {}
    units, rest = divmod(request["mem"], vendor.memory_factor)
    assert not rest
    written = {"gpu": request["nums"], "gpumem": units, "gpucores": request["cores"]}
    return {"limits": {f"nvidia.com/{name}": str(value) for name, value in written.items() if value}}


def _container(number: int, case: dict[str, Any], vendor: Vendor) -> dict[str, Any]:
    resources = case if "limits" in case else _resources(case["request"], vendor)
    make = sidecar if case["kind"] == "sidecar" else container
    return make(f"c{number}", {"limits": resources.get("limits", {})})


@pytest.mark.parametrize("case", _group("webhook_quota"))
async def test_webhook_quota(case: dict[str, Any]) -> None:
    vendor = replace(NVIDIA, memory_factor=case.get("memory_factor", 1))
    hard = {f"limits.nvidia.com/{_NAMES[key]}": str(row["limit"]) for key, row in case["quota"].items() if row["set"]}
    used = {key: row["used"] for key, row in case["quota"].items()}
    holder = bound("old", "n1", "GPU-n1-0", used.get("mem", 0), cores=used.get("cores", 0), namespace="team")
    listed = [_container(number, each, vendor) for number, each in enumerate(case["containers"])]
    kinds = [each["kind"] for each in case["containers"]]
    inits = [each for each, kind in zip(listed, kinds, strict=True) if kind != "app"]
    apps = [each for each, kind in zip(listed, kinds, strict=True) if kind == "app"]
    quotas = [quota(hard, "team")] if hard else []
    async with admitting(
        node("n1", memory=10**7), *([holder] if any(used.values()) else []), *quotas, vendor=vendor
    ) as client:
        verdict = await client.admit(pod(*apps, inits=inits, scheduler="default-scheduler"))
    assert verdict.allowed == case["expect_allowed"], verdict.message
    if not verdict.allowed:
        assert verdict.code == 403
        assert verdict.message.startswith("exceeded quota team/gpus: nvidia.com/gpu")


@pytest.mark.parametrize("case", _group("request_parse"))
async def test_request_parse(case: dict[str, Any]) -> None:
    config = case["config"]
    vendor = replace(
        NVIDIA,
        memory_factor=config["memoryFactor"],
        default_memory_mib=config.get("defaultMemory", 0),
        default_cores=config.get("defaultCores", 0),
    )
    resources = {
        part: {f"nvidia.com/{name}": value for name, value in case[part].items()} for part in ("limits", "requests")
    }
    expected = case["expect"]
    asks_for_nothing = isinstance(expected, str)
    # The memory of a percentage on a card of 1,000,000 MiB; 101 is HAMi's mark for "no percentage".
    percentage = 101 if asks_for_nothing else expected.get("pct", 101)
    each = 0 if asks_for_nothing else expected["mem"] or 10**6 * percentage // 100
    needs = 0 if asks_for_nothing else each * expected.get("nums", 1)
    for missing in (0, vendor.memory_factor):
        hard = {"limits.nvidia.com/gpumem": str((needs - missing) // vendor.memory_factor)} if needs else {}
        async with admitting(node("n1", 4, memory=10**6), quota(hard, "team"), vendor=vendor) as client:
            verdict = await client.admit(pod(container("a", resources), scheduler="default-scheduler"))
        if case["id"] in DENIED:
            assert not verdict.allowed
            assert verdict.code == 422
            name, value = next((name, value) for name, value in case["limits"].items() if name != "gpu")
            assert f"spec.containers[a].resources.limits[nvidia.com/{name}]: {value}: " in verdict.message
        else:
            assert verdict.allowed == (asks_for_nothing or not missing), verdict.message
