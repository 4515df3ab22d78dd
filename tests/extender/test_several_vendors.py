"""Cards of several vendors in one cluster, on one node and in one pod, as users meet them.

It exists because everything between the manifest and the annotation must keep vendors apart. Invariant: nothing about
one vendor changes what another vendor's cards take.
"""

import io
import json
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accounting.mig_profiles import UNKNOWN, MigInstance
from accounting.pod import UnreadableAllocation
from accounting.vendors import HYGON, VENDORS
from extender.cli import main
from extender.cluster.cluster import Cluster
from extender.config import Settings
from extender.convert.allocation_text import join_texts, pack_rows, unpack_rows
from extender.convert.annotations import bind_annotations
from extender.convert.node import convert_node, convert_quota
from extender.convert.pod import convert_pod
from extender.verbs.verbs import Verbs
from extender.wire import core_v1
from tests.builders import make_apps
from tests.extender.inside import run_inside
from tests.extender.objects import ALLOCATION, Json, card, container, listed, node, pod, quota

HYGON_ALLOCATION = HYGON.devices_allocated_annotation
BOTH = Settings(further_vendors=(HYGON,))


def dcu(uuid: str, memory: int = 1000, *, health: str = "true", index: int = 0) -> str:
    """A record of Hygon's text register."""
    return f"{uuid},4,{memory},100,Z100L,0,{health},{index},hami-core:"


def mixed(name: str = "n1", *records: str, cards: int = 1, **more: Any) -> Json:  # noqa: ANN401 - any argument of `node`
    """A node with NVIDIA cards and Hygon cards."""
    text = "".join(records or (dcu(f"DCU-{name}-0"),))
    return node(name, cards, annotations={HYGON.register_annotation: text}, **more)


def asks(**amounts: int) -> Json:
    """Return resources, given by short names: gpu, gpumem, gpucores, dcunum, dcumem, dcucores."""
    limits = {f"{'nvidia' if name.startswith('gpu') else 'hygon'}.com/{name}": str(n) for name, n in amounts.items()}
    return {"limits": limits, "requests": dict(limits)}


def cluster_of(*objects: Json, settings: Settings = BOTH) -> Cluster:
    """A cluster of these objects."""
    cluster = Cluster(settings)
    for each in objects:
        raw = json.dumps(each).encode()
        if each["kind"] == "Node":
            cluster.cache.add_node(convert_node(core_v1.decode_node(raw), settings))
        elif each["kind"] == "Pod":
            cluster.put_pod(convert_pod(msgspec.json.decode(raw, type=core_v1.Pod), settings))
        else:
            cluster.put_quota(convert_quota(msgspec.json.decode(raw, type=core_v1.ResourceQuota), settings))
    return cluster


def filtered(cluster: Cluster, asking: Json, *names: str) -> Json:
    """Return filter's answer."""
    body = {"Pod": asking, "NodeNames": list(names)}
    answer: Json = json.loads(Verbs(cluster).filter(json.dumps(body).encode()))
    return answer


def bound(cluster: Cluster, asking: Json, name: str) -> str:
    """Bind a pod that filter has seen; return the deciding reason against it, with the numbers."""
    verbs = Verbs(cluster)
    verbs.filter(json.dumps({"Pod": asking, "NodeNames": [name]}).encode())
    meta = asking["metadata"]
    body = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": name}
    outcome = cluster.placed(cluster.pod(meta["uid"]), name)  # type: ignore[arg-type]  # filter told of it
    error = json.loads(verbs.bind(json.dumps(body).encode()))["Error"]
    assert bool(error) == isinstance(outcome, tuple)
    return f"{outcome[0].code}: {outcome[0].message}" if isinstance(outcome, tuple) else ""


def written(cluster: Cluster, uid: str) -> dict[str, str]:
    """Return the annotations that a Binding of the pod would carry, except empty ones."""
    allocation = cluster.pod(uid).allocation  # type: ignore[union-attr]  # it is bound
    assert isinstance(allocation, tuple)
    values = bind_annotations(cluster.settings.vendors, "n1", allocation, 0, lock_mode=False)
    return {key: value for key, value in values.items() if value and "devices" in key}


# -- one vendor's cards are no other's ---------------------------------------------------------------------------------


def test_a_pod_takes_only_cards_of_the_vendor_that_it_asks() -> None:
    cluster = cluster_of(node("n1"), mixed("n2"))
    asking = pod("p", [container("main", asks(dcunum=1, dcumem=100))])
    answer = filtered(cluster, asking, "n1", "n2")
    assert answer["NodeNames"] == ["n2"]
    assert answer["FailedAndUnresolvableNodes"] == {"n1": answer["FailedAndUnresolvableNodes"]["n1"]}
    assert bound(cluster, asking, "n2") == ""
    assert written(cluster, "uid-p") == {
        HYGON_ALLOCATION: "DCU-n2-0,DCU,100,100:;",
        HYGON.devices_to_allocate_annotation: "DCU-n2-0,DCU,100,100:;",
    }


def test_a23_a24_each_vendors_rows_stand_at_the_true_container_in_a_list_of_their_own() -> None:
    cluster = cluster_of(mixed("n1"))
    containers = [
        container("one", asks(gpu=1, gpumem=10)),
        container("none"),
        container("two", asks(dcunum=1, dcumem=20, dcucores=5)),
        container("three", asks(gpu=1, gpumem=30)),
    ]
    inits = [container("init", asks(dcunum=1, dcumem=40, dcucores=5))]
    assert bound(cluster, pod("p", containers, inits=inits), "n1") == ""
    texts = written(cluster, "uid-p")
    assert texts[ALLOCATION] == ";GPU-n1-0,NVIDIA,10,0:;;;GPU-n1-0,NVIDIA,30,0:;"
    assert texts[HYGON_ALLOCATION] == "DCU-n1-0,DCU,40,5:;;;DCU-n1-0,DCU,20,5:;;"
    # Read back, both belong to the same pod.
    again = pod("p", containers, inits=inits, node="n1", annotations={key: texts[key] for key in texts})
    read = convert_pod(msgspec.json.decode(json.dumps(again), type=core_v1.Pod), BOTH)
    assert read.allocation == cluster.pod("uid-p").allocation  # type: ignore[union-attr]  # it is bound


def test_one_container_may_hold_cards_of_two_vendors() -> None:
    cluster = cluster_of(mixed("n1"))
    asking = pod("p", [container("main", asks(gpu=1, gpumem=10, dcunum=1, dcumem=20))])
    assert bound(cluster, asking, "n1") == ""
    texts = written(cluster, "uid-p")
    assert (texts[ALLOCATION], texts[HYGON_ALLOCATION]) == ("GPU-n1-0,NVIDIA,10,0:;", "DCU-n1-0,DCU,20,100:;")


def test_a_pod_that_asks_two_vendors_needs_room_on_both_and_changes_nothing_else() -> None:
    full = pod("full", [container("main", asks(dcunum=1, dcumem=900))])
    cluster = cluster_of(mixed("n1"), node("n2"))
    assert bound(cluster, full, "n1") == ""
    before = cluster.cache.generation
    asking = pod("p", [container("main", asks(gpu=1, gpumem=10)), container("more", asks(dcunum=1, dcumem=200))])
    answer = filtered(cluster, asking, "n1", "n2")
    assert not answer["NodeNames"]
    assert list(answer["FailedNodes"]) == ["n1"]
    assert list(answer["FailedAndUnresolvableNodes"]) == ["n2"]
    assert "ExclusiveConflict" in bound(cluster, asking, "n1")
    assert cluster.cache.generation == before


def test_the_kubelets_count_is_kept_per_vendor() -> None:
    first = mixed("n1", dcu("DCU-0"), allocatable="1")
    first["status"]["allocatable"] |= {"hygon.com/dcunum": "2"}
    cluster = cluster_of(first)
    for name in ("a", "b"):
        assert bound(cluster, pod(name, [container("main", asks(dcunum=1, dcumem=1, dcucores=1))]), "n1") == ""
    third = pod("c", [container("main", asks(dcunum=1, dcumem=1, dcucores=1))])
    assert "wants a count of 1 at its peak; the node allows 2, its pods take 2" in bound(cluster, third, "n1")
    assert bound(cluster, pod("d", memory=1), "n1") == ""
    assert "the node allows 1, its pods take 1" in bound(cluster, pod("e", memory=1), "n1")


def test_a_vendors_selecting_annotations_do_not_limit_another_vendors_cards() -> None:
    notes = {"nvidia.com/use-gpuuuid": "GPU-n1-0", "hygon.com/nouse-gpuuuid": "DCU-0", "hygon.com/use-dcutype": "z100l"}
    cluster = cluster_of(mixed("n1", dcu("DCU-0"), dcu("DCU-1", index=1)))
    containers = [container("one", asks(gpu=1, gpumem=1)), container("two", asks(dcunum=1, dcumem=1))]
    assert bound(cluster, pod("p", containers, annotations=notes), "n1") == ""
    assert written(cluster, "uid-p")[HYGON_ALLOCATION] == ";DCU-1,DCU,1,100:;"
    other = notes | {"hygon.com/use-dcutype": "K100"}
    assert "TypeMismatch" in bound(cluster, pod("q", containers, annotations=other), "n1")


def test_two_pairs_of_uuid_annotations_must_both_accept_a_kunlun_card() -> None:
    xpu = VENDORS["xpu"]
    settings = Settings(vendor=xpu)
    entries = [
        {"id": f"X{at}", "index": at, "count": 4, "devmem": 98_304, "devcore": 100, "health": True} for at in range(4)
    ]
    nodes = node("n1", 0, annotations={xpu.register_annotation: json.dumps(entries)})
    cluster = cluster_of(nodes, settings=settings)
    resources = {"limits": {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "100"}}
    notes = {"hami.io/use-xpu-uuid": "X0,X1,X2", "baidu.com/use-gpuuuid": "X1,X2,X3", "baidu.com/nouse-gpuuuid": "X2"}
    assert bound(cluster, pod("p", [container("main", resources)], annotations=notes), "n1") == ""
    assert cluster.cache.pods["uid-p"].held[0][:4] == ("X1", 1, 24_576, 25)
    apart = {"hami.io/use-xpu-uuid": "X0", "baidu.com/use-gpuuuid": "X3"}
    refused = bound(cluster, pod("q", [container("main", resources)], annotations=apart), "n1")
    assert refused.startswith("UUIDMismatch")


def test_a_kunlun_card_holds_slices_of_one_size() -> None:
    xpu = VENDORS["xpu"]
    entry = [{"id": "X0", "count": 4, "devmem": 98_304, "devcore": 100, "health": True}]
    cluster = cluster_of(
        node("n1", 0, annotations={xpu.register_annotation: json.dumps(entry)}), settings=Settings(vendor=xpu)
    )

    def slice_of(name: str, memory: int) -> str:
        limits = {"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": str(memory)}
        return bound(cluster, pod(name, [container("main", {"limits": limits})]), "n1")

    assert slice_of("a", 20_000) == ""
    assert slice_of("b", 40_000).startswith("ModeMismatch")
    assert [slice_of(name, 24_576) for name in "cde"] == ["", "", ""]
    assert slice_of("f", 1).startswith("InsufficientSlots")


def test_slots_only_cards_are_shared_by_slots_alone() -> None:
    vastai = VENDORS["vastai"]
    entry = [{"id": "V0", "count": 2, "devmem": 10, "health": True}]
    settings = Settings(vendor=vastai)
    cluster = cluster_of(node("n1", 0, annotations={vastai.register_annotation: json.dumps(entry)}), settings=settings)
    resources = {"limits": {"vastaitech.com/va": "1"}}
    answers = [bound(cluster, pod(name, [container("main", resources)]), "n1") for name in "abc"]
    assert answers[:2] == ["", ""]
    assert answers[2].startswith("InsufficientSlots")


def test_ascend_gets_the_annotations_that_its_plugin_reads() -> None:
    ascend = VENDORS["ascend-310p"]
    entry = [{"id": "A0", "count": 7, "devmem": 21_527, "devcore": 100, "health": True}]
    settings = Settings(further_vendors=(ascend,))
    cluster = cluster_of(node("n1", annotations={ascend.register_annotation: json.dumps(entry)}), settings=settings)
    limits = {"huawei.com/Ascend310P": "1", "huawei.com/Ascend310P-memory": "2000"}
    assert bound(cluster, pod("p", [container("main", {"limits": limits})]), "n1") == ""
    allocation = cluster.pod("uid-p").allocation  # type: ignore[union-attr]  # it is bound
    assert isinstance(allocation, tuple)
    values = bind_annotations(settings.vendors, "n1", allocation, 7, lock_mode=False)
    assert values["hami.io/Ascend310P-devices-allocated"] == "A0,Ascend310P,3072,0:;"
    assert values["huawei.com/Ascend310P"] == '[{"UUID":"A0","temp":"vir01"}]'
    assert values["predicate-time"] == "7"
    # What the pod does not ask for is blanked, so that a forged value does not survive.
    assert values[ALLOCATION] == ""


def test_ascends_soft_split_is_refused() -> None:
    ascend = VENDORS["ascend-310p"]
    limits = {"huawei.com/Ascend310P": "1"}
    asking = pod("p", [container("main", {"limits": limits})], annotations={"huawei.com/vnpu-mode": "hami-core"})
    read = convert_pod(msgspec.json.decode(json.dumps(asking), type=core_v1.Pod), Settings(vendor=ascend))
    assert [str(each) for each in read.invalid] == [
        "metadata.annotations[huawei.com/vnpu-mode]: hami-core: this way of sharing a card is not managed"
    ]


# -- annotations -------------------------------------------------------------------------------------------------------


def test_one_vendors_unreadable_annotation_makes_the_pods_cards_unknown() -> None:
    both = {ALLOCATION: "GPU-n1-0,NVIDIA,10,0:;", HYGON_ALLOCATION: "DCU-n1-0,DCU,x,0:;"}
    containers = [container("main", asks(gpu=1, gpumem=10, dcunum=1, dcumem=20))]
    cluster = cluster_of(mixed("n1"), pod("p", containers, node="n1", annotations=both))
    assert cluster.cache.pods["uid-p"].blocks == ("DCU-n1-0", "GPU-n1-0")
    assert "DeviceBlocked" in bound(cluster, pod("q", memory=1), "n1")


def test_rows_of_another_vendor_do_not_stand_for_those_that_were_asked() -> None:
    forged = {HYGON_ALLOCATION: "DCU-n1-0,DCU,1,0:;"}
    cluster = cluster_of(mixed("n1"), pod("p", node="n1", annotations=forged))
    record = cluster.cache.pods["uid-p"]
    assert record.blocks == ("DCU-n1-0",)
    assert record.problem is not None
    assert "is absent or empty" in record.problem.message


@pytest.mark.parametrize("text", ["\0", "\0NVIDIA", "a\0b", ";\0DCU\0;"])
def test_a_forged_separator_is_an_unreadable_text(text: str) -> None:
    joined = join_texts({"NVIDIA": text})
    assert isinstance(unpack_rows(joined, make_apps(1), "field"), UnreadableAllocation)


def test_rows_survive_being_packed() -> None:
    texts = {"NVIDIA": "A,NVIDIA,1,2:;;", "DCU": ";B,DCU,3,4:C,DCU,5,6:;"}
    rows = unpack_rows(join_texts(texts), make_apps(2), "field")
    assert isinstance(rows, tuple)
    assert pack_rows(rows) == join_texts(texts)
    assert [[(row.uuid, row.vendor) for row in own] for own in rows] == [
        [("A", "NVIDIA")],
        [("B", "DCU"), ("C", "DCU")],
    ]
    assert pack_rows(unpack_rows("A,NVIDIA,1,2:;", make_apps(1), "field")) == "A,NVIDIA,1,2:;"  # type: ignore[arg-type]  # readable


# -- quotas ------------------------------------------------------------------------------------------------------------


def test_a49_quotas_limit_each_vendors_resources_in_one_unit() -> None:
    iluvatar = VENDORS["iluvatar-bi-v100"]
    settings = Settings(further_vendors=(iluvatar,))
    register = {iluvatar.register_annotation: "B0,10,32768,100,BI-V100,0,true:"}
    # 32 units of 256 MiB are 8192 MiB.
    limits = {"limits.iluvatar.ai/BI-V100.vMem": "32", "limits.nvidia.com/gpumem": "500"}
    cluster = cluster_of(node("n1", annotations=register), quota(limits), settings=settings)
    assert cluster.problems() == []

    def units(name: str, count: int) -> str:
        resources = {"limits": {"iluvatar.ai/BI-V100-vgpu": "1", "iluvatar.ai/BI-V100.vMem": str(count)}}
        return bound(cluster, pod(name, [container("main", resources)]), "n1")

    assert units("a", 31) == ""
    assert "QuotaExceeded" in units("b", 2)
    assert units("c", 1) == ""
    assert bound(cluster, pod("d", memory=500), "n1") == ""
    assert "QuotaExceeded" in bound(cluster, pod("e", memory=1), "n1")
    cluster.delete_pod("uid-a")
    assert units("f", 31) == ""


# -- the command line --------------------------------------------------------------------------------------------------


def run(path: Path, command: str, *objects: Json, vendors: str = "nvidia,hygon", **kwargs: Any) -> Json:  # noqa: ANN401
    """Run a command; return its JSON."""
    file = path / "objects.json"
    file.write_text(listed(*objects))
    where = ("-f", file) if command == "account" else ("--cluster", file)
    result = run_inside(command, *where, "-o", "json", "--vendors", vendors, *kwargs.get("more", ()))
    answer: Json = json.loads(result.out)
    return answer


def test_verify_shows_the_vendor_and_an_account_shows_totals_by_vendor(tmp_path: Path) -> None:
    texts = {ALLOCATION: "GPU-n1-0,NVIDIA,10,1:;", HYGON_ALLOCATION: "DCU-n1-0,DCU,20,2:;"}
    holder = pod("p", [container("main", asks(gpu=1, gpumem=10, dcunum=1, dcumem=20))], node="n1", annotations=texts)
    devices = run(tmp_path, "verify", mixed("n1"), holder)["devices"]
    assert {each["uuid"]: (each["vendor"], each["requested"]["memory"]) for each in devices} == {
        "GPU-n1-0": ("NVIDIA", 10),
        "DCU-n1-0": ("DCU", 20),
    }
    account = run(tmp_path, "account", holder)
    assert account["total"]["peak"] == {"count": 2, "memory": 30, "cores": 3}
    assert account["total"]["vendors"]["DCU"]["peak"] == {"count": 1, "memory": 20, "cores": 2}
    assert account["total"]["vendors"]["NVIDIA"]["steady"] == {"count": 1, "memory": 10, "cores": 1}
    alone = run(tmp_path, "account", holder, vendors="nvidia")
    assert "vendors" not in alone["total"]
    assert alone["peak"] == {"GPU-n1-0": {"slots": 1, "memory": 10, "cores": 1}}


def test_a_vendor_that_is_not_on_changes_nothing(tmp_path: Path) -> None:
    devices = run(tmp_path, "verify", mixed("n1"), vendors="nvidia")["devices"]
    assert [each["uuid"] for each in devices] == ["GPU-n1-0"]


def test_explain_names_the_vendor_of_missing_cards(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(pod("p", [container("main", asks(dcunum=1))])))
    (tmp_path / "c.json").write_text(listed(node("n1")))
    files = ("-f", tmp_path / "p.json", "--cluster", tmp_path / "c.json")
    result = run_inside("explain", *files, "-o", "json", "--vendors", "nvidia,hygon")
    (reason,) = json.loads(result.out)["nodes"][0]["reasons"]
    assert (result.status, reason["code"], reason["message"]) == (1, "NoDevices", "the node registers no cards of DCU")


def test_reserved_memory_is_no_capacity_and_is_shown(tmp_path: Path) -> None:
    cluster = node("n1", [card("GPU-0", memory=1000, type="Tesla T4"), card("GPU-1", 1, memory=1000)])
    devices = run(tmp_path, "verify", cluster, more=("--reserved-memory", "T4=450"))["devices"]
    assert [(each["capacity"]["memory"], each["reserved_memory"]) for each in devices] == [(550, 450), (1000, 0)]
    (tmp_path / "p.json").write_text(json.dumps(pod("p", memory=600, annotations={"nvidia.com/use-gputype": "T4"})))
    files = ("-f", tmp_path / "p.json", "--cluster", tmp_path / "objects.json")
    result = run_inside("explain", *files, "-o", "json", "--reserved-memory", "T4=450")
    message = json.loads(result.out)["nodes"][0]["reasons"][0]["message"]
    assert "550 MiB free of 550, 450 more are reserved" in message


@pytest.mark.parametrize(
    "flag,value,why",
    [
        ("--vendors", "nvidia,amd", "amd: is not supported: its cores are compute units"),
        ("--vendors", "nvidea", "nvidea: is none of nvidia, hygon"),
        ("--vendors", "", "(empty): is none of"),
        ("--vendors", "hygon,hygon", "hygon: is named twice"),
        ("--reserved-memory", "T4", "T4: must be MODEL=MIB"),
        ("--reserved-memory", "T4=-1", "-1: must be a whole number of MiB"),
        ("--reserved-memory", "=5", "=5: must be MODEL=MIB"),
        ("--gpu-scheduler-policy", "binpak", "binpak is no policy"),
    ],
)
def test_a_flag_that_cannot_be_used_is_named(flag: str, value: str, why: str) -> None:
    said = io.StringIO()
    with pytest.raises(SystemExit, match="2"), redirect_stderr(said):
        main(["verify", "--cluster", "x", flag, value])
    assert why in said.getvalue()


def test_a_word_that_is_no_policy_is_ignored_and_named(tmp_path: Path) -> None:
    notes = {"hami.io/gpu-scheduler-policy": "binpak,mutex", "hami.io/node-scheduler-policy": "spred"}
    (tmp_path / "p.json").write_text(json.dumps(pod("p", annotations=notes)))
    (tmp_path / "c.json").write_text(listed(node("n1")))
    result = run_inside("explain", "-f", tmp_path / "p.json", "--cluster", tmp_path / "c.json", "-o", "json")
    assert result.status == 0
    assert json.loads(result.out)["ignored"] == [
        "metadata.annotations[hami.io/node-scheduler-policy]: spred: is no policy and is ignored",
        "metadata.annotations[hami.io/gpu-scheduler-policy]: binpak: is no policy and is ignored",
    ]


def test_an_instance_that_nobody_knows_stays_one_among_known_ones() -> None:
    known = '[{"containerIndex":1,"gpuUUID":"M","profile":"1g.5gb","placement":{"start":0,"size":1}}]'
    text = join_texts({"NVIDIA": "M[0-1],NVIDIA,5,0:;M,NVIDIA,5,14:;", "mig:NVIDIA": known})
    rows = unpack_rows(text, make_apps(2), "field")
    assert not isinstance(rows, UnreadableAllocation)
    again = unpack_rows(pack_rows(rows), make_apps(2), "field")
    assert again == rows
    assert [row.instance for own in rows for row in own] == [UNKNOWN, MigInstance("1g.5gb", 0, 1)]
