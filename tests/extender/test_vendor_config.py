"""`--vendor-config`: resources have the names that an operator gave them in HAMi's device configuration.

It exists because a cluster with renamed resources must behave like any other. It must not test what the resources do.
The files follow HAMi's chart and public clusters.
"""

import json
from pathlib import Path

import pytest
import yaml

from extender.admission.settings import AdmissionSettings
from extender.cli import _parser
from extender.commands.defaults import settings_of, with_config
from extender.commands.vendor_config import read_vendor_config
from extender.config import Settings
from tests.extender.inside import refusal_inside, run_inside
from tests.extender.objects import Json, container, held, listed, node, pod, quota, rows

RENAMED = """
nvidia:
  resourceCountName: nvidia.com/vgpu
  resourceMemoryName: nvidia.com/vgpu-mem
  resourceMemoryPercentageName: nvidia.com/vgpu-mem-percentage
  resourceCoreName: nvidia.com/vgpu-cores
  resourcePriorityName: nvidia.com/vgpu-priority
  overwriteEnv: false
  defaultMemory: 300
  defaultCores: 20
  defaultGPUNum: 2
  deviceSplitCount: 10
  deviceMemoryScaling: 1.5
  deviceCoreScaling: 1
  disablecorelimit: "true"
  gpuCorePolicy: force
  runtimeClassName: "nvidia"
  knownMigGeometries:
  - models: [ "A30" ]
    allowedGeometries:
    - - name: 1g.6gb
        memory: 6144
        count: 4
  favouriteColour: green
cambricon:
  resourceCountName: cambricon.com/vmlu
hygon:
  resourceCountName: hygon.com/hcunum
  resourceMemoryName: hygon.com/hcumem
  resourceCoreName: hygon.com/hcucores
  memoryFactor: 1
kunlun:
  resourceCountName: kunlunxin.com/xpu
  resourceVCountName: kunlunxin.com/slice
  resourceVMemoryName: kunlunxin.com/slice-memory
vastai:
  resourceCountName: ""
biren:
iluvatars:
- chipName: MR-V100
  commonWord: MR-V100
  resourceCountName: iluvatar.ai/mr
  resourceMemoryName: iluvatar.ai/mr.vMem
  resourceCoreName: iluvatar.ai/mr.vCore
- commonWord: MR-V900
  resourceCountName: iluvatar.ai/new
vnpus:
  hamiVnpuCore: false
  configs:
  - chipName: 910B3
    commonWord: Ascend910B3
    resourceName: huawei.com/npu
    resourceMemoryName: huawei.com/npu-memory
    resourceCoreName: huawei.com/npu-core
    memoryAllocatable: 60000
    memoryCapacity: 65536
    memoryFactor: 1
    aiCore: 20
    aiCPU: 7
    templates:
    - {name: half, memory: 30000, aiCore: 10, aiCPU: 3}
  - commonWord: Ascend910C
    resourceName: huawei.com/Ascend910C
colours: {}
"""
IGNORED = [
    "nvidia.favouriteColour: is not known and is ignored",
    "kunlun.resourceCountName: is not supported: whole cards are taken by wings of four; xpu is its slices",
    "iluvatars[1]: MR-V900: is not supported: this chip is not known",
    "vnpus.configs[1]: Ascend910C: is not supported: its cards are taken in pairs of one module",
    "cambricon: is not supported: its cards come from the node's capacity, and it has a node lock of its own",
    "colours: is not known and is ignored",
]
COUNT, MEMORY, CORES = "nvidia.com/vgpu", "nvidia.com/vgpu-mem", "nvidia.com/vgpu-cores"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "device-config.yaml"
    path.write_text(RENAMED, encoding="utf-8")
    return path


def settings(config: Path, *flags: str) -> tuple[Settings, AdmissionSettings]:
    arguments = _parser().parse_args(["serve", "--vendor-config", str(config), *flags])
    read = read_vendor_config(str(config))
    filled = with_config(arguments, read)
    admission = AdmissionSettings(default_count=filled.default_gpu_count, runtime_class=filled.runtime_class_name)
    return settings_of(filled, read), admission


def asks(count: int, memory: int | None = None) -> Json:
    limits = {COUNT: str(count)} | ({} if memory is None else {MEMORY: str(memory)})
    return {"limits": limits, "requests": dict(limits)}


def test_the_file_says_which_vendors_are_on_and_by_which_names(config: Path) -> None:
    read, admission = settings(config)
    nvidia, hcu, xpu, iluvatar, ascend = read.vendors
    assert nvidia.resources == (COUNT, MEMORY, "nvidia.com/vgpu-mem-percentage", CORES)
    assert (nvidia.priority_resource, nvidia.default_memory_mib, nvidia.default_cores) == (
        "nvidia.com/vgpu-priority",
        300,
        20,
    )
    assert (hcu.key, hcu.register_annotation) == ("HCU", "hami.io/node-hcu-register")
    assert xpu.resources == ("kunlunxin.com/slice", "kunlunxin.com/slice-memory")
    assert iluvatar.resources == ("iluvatar.ai/mr", "iluvatar.ai/mr.vMem", "iluvatar.ai/mr.vCore")
    assert ascend.resources == ("huawei.com/npu", "huawei.com/npu-memory", "huawei.com/npu-core")
    assert [(each.name, each.memory) for each in ascend.templates] == [("half", 30_000), ("", 60_000)]
    assert (admission.default_count, admission.runtime_class) == (2, "nvidia")


def test_a_flag_goes_before_the_file(config: Path) -> None:
    flags = ("--vendors", "hygon-hcu,nvidia", "--default-memory", "7", "--default-gpu-count", "0")
    read, admission = settings(config, *flags, "--runtime-class-name", "mine")
    assert [(vendor.key, vendor.count_resource) for vendor in read.vendors] == [
        ("HCU", "hygon.com/hcunum"),
        ("NVIDIA", COUNT),
    ]
    assert (read.vendors[1].default_memory_mib, read.vendors[1].default_cores) == (7, 20)
    assert (admission.default_count, admission.runtime_class) == (0, "mine")


def test_what_is_not_known_is_reported_and_changes_nothing(config: Path) -> None:
    result = run_inside("account", "-f", "-", "--vendor-config", config, stdin=json.dumps(pod("p")).encode())
    assert result.status == 0
    assert result.err.splitlines() == [f"warning: --vendor-config: {config}: {each}" for each in IGNORED]


def test_the_configmap_and_the_old_list_of_npus_are_read(tmp_path: Path) -> None:
    old = "vnpus:\n- {commonWord: Ascend310P, resourceName: huawei.com/p, resourceMemoryName: huawei.com/p-memory}\n"
    path = tmp_path / "configmap.yaml"
    path.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": {"device-config.yaml": old}}), encoding="utf-8")
    read = read_vendor_config(str(path))
    assert {name: vendor.count_resource for name, vendor in read.vendors.items()} == {"ascend-310p": "huawei.com/p"}
    assert read.ignored == []


@pytest.mark.parametrize(
    "text, field, why",
    [
        ("nvidia: 3", "nvidia: 3", "must be a mapping"),
        ("nvidia: {resourceCountName: gpu}", "nvidia.resourceCountName: 'gpu'", "must be the name of an extended"),
        ("nvidia: {resourceCountName: a/b, defaultMemory: -1}", "nvidia.defaultMemory: -1", "must be a whole number"),
        ("nvidia: {resourceCountName: a/b, defaultCores: many}", "nvidia.defaultCores: 'many'", "must be a whole"),
        ("nvidia: {resourceCountName: a/b, resourceCoreName: a/b}", "a/b: names two resources", "of nvidia"),
        ("vnpus: {configs: 3}", "vnpus.configs: 3", "must be a list"),
        ("nvidia: {}", "", "turns on no vendor that is supported"),
        ("[", "", "is not YAML"),
        ("text", "", "holds no device configuration"),
        ("kind: ConfigMap", "", "holds no device configuration"),
    ],
)
def test_what_cannot_be_used_is_bad_input(text: str, field: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    line = refusal_inside("account", "-f", "-", "--vendor-config", path, stdin=b"{}")
    assert line.startswith("error: --vendor-config: ")
    assert field in line
    assert why in line


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "No such file" in refusal_inside("account", "-f", "-", "--vendor-config", tmp_path / "x", stdin=b"{}")


# -- everything that names a resource follows --------------------------------------------------------------------------


def test_account_explain_verify_and_quota_follow(config: Path, tmp_path: Path) -> None:
    bound = pod("b", [container("main", asks(1, 400))], node="n1", allocation=rows([("GPU-n1-0", 400, 20)]))
    charged = quota({f"limits.{MEMORY}": "500", f"requests.{COUNT}": "5"})
    cluster = tmp_path / "cluster.json"
    cluster.write_text(listed(node("n1", 2), bound, charged), encoding="utf-8")
    flags = ("--vendor-config", config)

    def asked(resources: Json) -> Json:
        stdin = json.dumps(pod("p", [container("main", resources)])).encode()
        answer = run_inside("explain", "-f", "-", "--cluster", cluster, "-o", "json", *flags, stdin=stdin)
        return dict(answer.json()["nodes"][0])

    assert asked(asks(1, 100))["devices"] == {"GPU-n1-1": held(1, 100, 20)}
    # The file's default memory, which would exceed the quota.
    assert [each["code"] for each in asked(asks(1))["reasons"]] == ["QuotaExceeded"]
    assert MEMORY in asked(asks(1))["reasons"][0]["message"]
    assert asked({"limits": {"nvidia.com/gpu": "1"}})["devices"] == {}
    account = run_inside("account", "-f", "-", "-o", "json", *flags, stdin=json.dumps(bound).encode()).json()
    assert account["total"]["peak"] == {"count": 1, "memory": 400, "cores": 20}
    verify = run_inside("verify", "--cluster", cluster, "-o", "json", *flags).json()
    assert verify["problems"] == []


def test_admission_asks_about_the_names(config: Path) -> None:
    printed = run_inside("webhooks", "--vendor-config", config).out.decode()
    assert "nvidia.com/vgpu" in printed
    assert "nvidia.com/gpu" not in printed


# -- scheduler-config --------------------------------------------------------------------------------------------------

MANIFEST = Path(__file__).resolve().parents[2] / "manifests" / "scheduler" / "kube-scheduler-config.yaml"


def test_the_manifest_is_what_the_command_prints() -> None:
    result = run_inside("scheduler-config")
    assert (result.status, result.err) == (0, "")
    assert result.out.decode() == MANIFEST.read_text(encoding="utf-8")


def test_the_stanza_follows_the_names(config: Path) -> None:
    flags = ("--vendor-config", config, "--vendors", "nvidia,hygon-hcu", "--scheduler-name", "cards")
    printed = yaml.safe_load(run_inside("scheduler-config", *flags).out)
    assert printed["profiles"] == [{"schedulerName": "cards"}]
    (stanza,) = printed["extenders"]
    assert {each["name"]: each["ignoredByScheduler"] for each in stanza["managedResources"]} == {
        COUNT: False,
        MEMORY: True,
        "nvidia.com/vgpu-mem-percentage": True,
        CORES: True,
        "nvidia.com/vgpu-priority": True,
        "hygon.com/hcunum": False,
        "hygon.com/hcumem": True,
        "hygon.com/hcucores": True,
    }
    assert run_inside("scheduler-config", *flags, "-o", "json").json() == printed


def test_cards_of_both_names_of_hygons_are_known(tmp_path: Path) -> None:
    text = "HCU-1,4,65520,100,HCU-K100_AI,0,true,0,hami:"
    both = {"hami.io/node-hcu-register": text, "hami.io/node-dcu-register": text.replace("HCU", "DCU")}
    cluster = tmp_path / "cluster.json"
    cluster.write_text(listed(node("n1", 0, annotations=both)), encoding="utf-8")
    flags = ("--vendors", "hygon,hygon-hcu", "--cluster", cluster, "-o", "json")
    for count, uuid in (("hygon.com/hcunum", "HCU-1"), ("hygon.com/dcunum", "DCU-1")):
        asking = pod("p", [container("main", {"limits": {count: "1"}})])
        answer = run_inside("explain", "-f", "-", *flags, stdin=json.dumps(asking).encode()).json()
        assert list(answer["nodes"][0]["devices"]) == [uuid]
