"""A pod of a watch, whose containers are read by their text, equals the pod that other readings give.

The tests expect what the whole decoder and the slow reading of the rows say.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.pod import Pod
from accounting.pod_record import record_pod
from accounting.vendor import DEFAULT_VENDOR_KEY, NVIDIA
from accounting.vendors import VENDORS
from extender.config import Settings
from extender.convert.pod import allocation_of, convert_without_rows, held_or_rows, rows_text
from extender.wire import core_v1, watched

FURTHER = tuple(vendor for vendor in VENDORS.values() if vendor.key != DEFAULT_VENDOR_KEY)
OTHER = FURTHER[0]
SEVERAL = Settings(further_vendors=FURTHER)

_QUANTITIES = st.sampled_from(("0", "1", "2", "4000", "100", "1500m", "16Gi", "x", "-1", 1, 1.0, 2.5, None, True))
_NAMES = st.sampled_from((*NVIDIA.resources, "cpu", "memory", *OTHER.resources))
_LISTS = st.one_of(st.none(), st.dictionaries(_NAMES, _QUANTITIES, max_size=4))
_RESOURCES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.fixed_dictionaries({}, optional={"limits": _LISTS, "requests": _LISTS, "claims": st.just([])})
)
_CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from(("a", "b", "c"))},
    optional={"resources": _RESOURCES, "restartPolicy": st.sampled_from(("Always", "Never"))},
)
_TEXTS = st.sampled_from(
    ("GPU-a,NVIDIA,100,10:;", "GPU-b,NVIDIA,200,0:;", "GPU-a,NVIDIA,5,100:;", ";", "broken;", "A,x,1,2:B,x,3,4:;")
)


@st.composite
def _pods(draw: st.DrawFn) -> dict[str, Any]:
    inits, apps = draw(st.lists(_CONTAINERS, max_size=2)), draw(st.lists(_CONTAINERS, max_size=3))
    text = "".join(draw(st.lists(_TEXTS, min_size=len(inits) + len(apps), max_size=len(inits) + len(apps))))
    vendor = draw(st.sampled_from(("hami.io/vgpu-devices-allocated", OTHER.devices_allocated_annotation)))
    statuses = [{"name": each["name"], "state": {"terminated": {"exitCode": 0}}} for each in inits]
    return {
        "metadata": {"name": "p", "uid": "u", "annotations": draw(st.sampled_from(({}, {vendor: text})))},
        "spec": {"nodeName": "n", "initContainers": inits, "containers": apps},
        "status": {
            "phase": draw(st.sampled_from(("Running", "Succeeded"))),
            "initContainerStatuses": draw(st.sampled_from(([], statuses))),
        },
    }


def _converted(wire: watched.AnyPod, settings: Settings) -> Pod:
    return convert_without_rows(wire, settings, rows_text(wire, settings))


@pytest.mark.parametrize("settings", [Settings(), SEVERAL], ids=["one vendor", "several vendors"])
@given(manifest=_pods())
def test_it_is_the_pod_that_the_whole_decoder_gives(manifest: dict[str, Any], settings: Settings) -> None:
    raw = msgspec.Raw(json.dumps(manifest).encode())
    told = _converted(watched.decode_pod(raw), settings)
    assert told == _converted(msgspec.json.decode(raw, type=core_v1.Pod), settings)
    rows = allocation_of(told, told.allocation_text, settings)
    assert record_pod(told, held_or_rows(told, told.allocation_text, settings)) == record_pod(told, rows)


@pytest.mark.parametrize(
    "resources",
    ['"x"', "[]", "3", '{"limits": []}', '{"limits": {"a": "b"}, "requests": 7}', '{"limits": {"a": {"'],
)
@pytest.mark.parametrize("name", ["initContainers", "containers"])
def test_what_the_whole_decoder_refuses_is_refused_with_its_words(name: str, resources: str) -> None:
    raw = msgspec.Raw(f'{{"metadata": {{"uid": "u"}}, "spec": {{"{name}": [{{"resources": {resources}}}]}}}}'.encode())
    with pytest.raises(msgspec.DecodeError) as expected:
        msgspec.json.decode(raw, type=core_v1.Pod)
    with pytest.raises(msgspec.DecodeError) as refused:
        convert_without_rows(watched.decode_pod(raw), Settings())
    assert watched.why_undecodable(raw, refused.value) == str(expected.value)
