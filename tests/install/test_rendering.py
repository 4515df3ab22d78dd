"""The chart and the manifests: both give the same objects, and the objects keep what they promise.

It exists because a cluster is installed from either. It must not need a cluster. `make clients` builds helm, and
kubectl where there is none; before that, what needs them is skipped and says so. `.ci/run` does it before the tests.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from accounting.vendor import NVIDIA
from extender import __version__
from extender.cli import _parser
from extender.commands.scheduler_config import scheduler_config
from tests.e2e.clients import renderer
from tests.install.rendering import CHART, MODES, ROOT, Objects, RenderError, by_helm, by_kustomize, values_of

Json = dict[str, Any]
#: Every component; tests/e2e/test_install.py takes them one by one.
ALL = ("api-port", "cert-manager", "monitoring")
VALUES: Json = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text())


def program(name: str) -> Path:
    found = renderer(name)
    if found is None:
        pytest.skip(f"{name} is not here: `make clients` builds it, which needs Go")
    return found


# -- the same objects --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_chart_and_manifests_give_the_same_objects(mode: str, tmp_path: Path) -> None:
    kubectl, helm = program("kubectl"), program("helm")
    for components in ((), ALL) if mode != "embedded" else ((),):
        expected = by_kustomize(kubectl, mode, components, tmp_path)
        found = by_helm(helm, *values_of(mode, components))
        assert found.keys() == expected.keys()
        for name, each in expected.items():
            assert _plain(found[name]) == _plain(each), (name, components)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "embedded"])
def test_the_component_that_evicts_gives_every_mode_the_option_the_stop_file_and_the_permission(
    mode: str, tmp_path: Path
) -> None:
    kubectl = program("kubectl")
    plain, evicting = (by_kustomize(kubectl, mode, each, tmp_path) for each in ((), (ROOT / "manifests" / "evict",)))
    added = {name for name in evicting if name not in plain}
    assert {(name.kind, name.name) for name in added} == {
        ("ClusterRole", "gpu-extender-evicts"),
        ("ClusterRoleBinding", "gpu-extender-evicts"),
    }
    changed = [name for name, each in plain.items() if evicting[name] != each]
    assert [name.name for name in changed] == ["gpu-extender"]
    before, after = (objects[changed[0]]["spec"]["template"]["spec"] for objects in (plain, evicting))
    assert after["containers"][0]["args"] == [
        *before["containers"][0]["args"],
        "--preemption=evict",
        "--preemption-stop-file=/etc/gpu-extender/preemption/stop",
    ]
    volume = {"name": "stop-preemption", "configMap": {"name": "gpu-extender-stop-preemption", "optional": True}}
    assert after["volumes"] == [*before["volumes"], volume]
    mounts = [
        {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]} for spec in (before, after)
    ]
    assert mounts[1] == mounts[0] | {"stop-preemption": "/etc/gpu-extender/preemption"}


K = "nvidia.com/GH100_H200_SXM_141GB"
#: What a kustomization of one's own adds, as docs/install.md says.
RAW_KEY: Json = {
    "apiVersion": "kustomize.config.k8s.io/v1alpha1",
    "kind": "Component",
    "patches": [
        {
            "target": {"kind": "(Deployment|DaemonSet)", "name": "gpu-extender|gpu-extender-certs"},
            "patch": yaml.safe_dump(
                [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": f"--raw-key={K}"}]
            ),
        }
    ],
}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "embedded"])
def test_holds_and_taints_are_off_by_default_and_the_same_objects_in_both(mode: str, tmp_path: Path) -> None:
    kubectl, helm = program("kubectl"), program("helm")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "kustomization.yaml").write_text(yaml.safe_dump(RAW_KEY))
    manifests = ROOT / "manifests"
    expected = by_kustomize(kubectl, mode, (tmp_path / "own", manifests / "holds", manifests / "taints"), tmp_path)
    found = by_helm(
        helm,
        *values_of(mode, ()),
        f"--set=rawKeys={{{K}}}",
        "--set=holds.enabled=true",
        "--set=taintHeldCards.enabled=true",
    )
    assert found.keys() == expected.keys()
    plain = by_helm(helm, *values_of(mode, ()))
    assert {(name.kind, name.name) for name in found.keys() - plain.keys()} == {
        ("CustomResourceDefinition", "holds.gpu-extender.io"),
        ("ClusterRole", "gpu-extender-holds"),
        ("ClusterRoleBinding", "gpu-extender-holds"),
        ("ClusterRole", "gpu-extender-taints"),
        ("ClusterRoleBinding", "gpu-extender-taints"),
    }
    for name, each in expected.items():
        if name.name != "gpu-scheduler-config":
            assert _with_sorted_args(found[name]) == _with_sorted_args(_plain(each)), name
    for objects, options in ((found, True), (plain, False)):
        (args,) = (
            spec["containers"][0]["args"] for spec in _pods(objects) if spec["serviceAccountName"] == "gpu-extender"
        )
        added = {
            f"--raw-key={K}",
            "--hold-sets",
            "--hold-resource=holds.v1alpha1.gpu-extender.io",
            "--taint-held-cards",
        }
        assert added & set(args) == (added if options else set())
        _parser().parse_args(args)


def _with_sorted_args(each: Json) -> Json:
    """An object; patches append arguments in another order than the chart."""
    copied: Json = json.loads(json.dumps(each, default=str))
    spec = copied["spec"].get("template", {}).get("spec", {}) if "spec" in copied else {}
    for container in spec.get("containers", ()):
        container.get("args", []).sort()
    return copied


def test_whole_devices_reach_kube_scheduler_as_the_command_says_it() -> None:
    helm = program("helm")
    config = next(
        each for name, each in by_helm(helm, f"--set=rawKeys={{{K}}}").items() if name.name == "gpu-scheduler-config"
    )
    expected = scheduler_config((NVIDIA,), "gpu-scheduler", (K,))
    assert yaml.safe_load(config["data"]["kube-scheduler-config.yaml"]) == yaml.safe_load(expected)
    with pytest.raises(RenderError, match=r"holds\.enabled needs rawKeys"):
        by_helm(helm, "--set=holds.enabled=true")


def _plain(each: Json) -> Json:
    """An object; the data of a ConfigMap without the blank space at its end."""
    if each["kind"] == "ConfigMap":
        return each | {"data": {key: text.rstrip() for key, text in each["data"].items()}}
    return each


# -- what every mode promises ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_pods_keep_to_pod_security_restricted(mode: str) -> None:
    for pod in _pods(by_helm(program("helm"), *values_of(mode, ()))):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.get("hostNetwork", False) is (mode == "sidecar" and pod["serviceAccountName"] == "gpu-extender")
        assert {next(iter(set(volume) - {"name"})) for volume in pod.get("volumes", ())} <= {
            "configMap",
            "emptyDir",
            "projected",
            "secret",
        }
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"]


def _pods(objects: Objects) -> Iterator[Json]:
    found = [each["spec"]["template"]["spec"] for each in objects.values() if "template" in each.get("spec", {})]
    assert found
    yield from found


@pytest.mark.parametrize("mode", MODES)
def test_every_flag_is_known(mode: str) -> None:
    changed = ["--set=schedulerName=other", "--set=api.enabled=true", "--set=scheduler.certManager.enabled=true"]
    changed += ["--set=resourceName=example.com/gpu", "--set=scheduler.defaultSchedulerPolicy.nodeSchedulerPolicy=fgd"]
    changed += ["--set=scheduler.forceOverwriteDefaultScheduler=false", "--set=trustedAccounts={a:b,c:d}"]
    changed += ["--set=scheduler.extender.extraArgs={--metrics-per-card}"]
    for flags in ([], [] if mode == "embedded" else changed):
        for pod in _pods(by_helm(program("helm"), *values_of(mode, ()), *flags, namespace="gpu")):
            for container in pod["containers"]:
                if "args" in container:
                    _parser().parse_args(container["args"])


@pytest.mark.parametrize("mode", MODES)
def test_another_namespace_is_named_everywhere(mode: str) -> None:
    text = json.dumps([*by_helm(program("helm"), *values_of(mode, ()), namespace="gpu").values()], default=str)
    for left in (
        "system:serviceaccount:kube-system:hami-device-plugin",
        # Names of the cluster's own: its DNS, and who may read how it authenticates.
        '"kubernetes.io/metadata.name": "kube-system"',
        '"name": "gpu-scheduler-authentication", "namespace": "kube-system"',
        '"name": "gpu-extender-follows", "namespace": "kube-system"',
    ):
        text = text.replace(left, "")
    assert "kube-system" not in text


def test_other_resource_names_reach_everybody_who_reads_requests() -> None:
    objects = by_helm(program("helm"), "--set=resourceMem=example.com/mem", "--set=schedulerName=other")
    config = next(each for name, each in objects.items() if name.name == "gpu-scheduler-config")["data"]
    stanza = yaml.safe_load(config["kube-scheduler-config.yaml"])
    names = [each["name"] for each in stanza["extenders"][0]["managedResources"]]
    assert ("example.com/mem" in names, "nvidia.com/gpumem" in names, "nvidia.com/gpu" in names) == (True, False, True)
    assert stanza["profiles"] == [{"schedulerName": "other"}]
    readers = [
        container["args"][0]
        for pod in _pods(objects)
        for container in pod["containers"]
        if "--vendor-config=/etc/gpu-extender/vendors/device-config.yaml" in container.get("args", ())
    ]
    assert sorted(readers) == ["certs", "serve"]


# -- values ------------------------------------------------------------------------------------------------------------


def test_the_chart_has_the_programs_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_values_keep_to_their_schema_and_the_schema_knows_no_others() -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    jsonschema_rs.Draft7Validator(SCHEMA).validate(VALUES)
    assert set(_leaves(VALUES)) == set(_described(SCHEMA))


def _leaves(values: Json, before: str = "") -> Iterator[str]:
    """Names of values; below a free map or a list there are none."""
    for key, value in values.items():
        path = f"{before}{key}"
        is_map = isinstance(value, dict) and value and key not in ("resources", "nodeSelector", "labels")
        yield from _leaves(value, f"{path}.") if is_map else (path,)


def _described(schema: Json, before: str = "") -> Iterator[str]:
    for key, value in schema["properties"].items():
        has_properties = "properties" in value and key != "resources"
        yield from _described(value, f"{before}{key}.") if has_properties else (f"{before}{key}",)


@pytest.mark.parametrize(
    "change, field",
    [
        ({"mode": "daemon"}, "mode"),
        ({"modes": "sidecar"}, "modes"),
        ({"scheduler": {"replicas": -1}}, "replicas"),
        ({"scheduler": {"replicas": "3"}}, "replicas"),
        ({"resourceName": "gpu"}, "resourceName"),
        ({"scheduler": {"extender": {"extraArgs": ["claims"]}}}, "extraArgs"),
        ({"scheduler": {"defaultSchedulerPolicy": {"nodeSchedulerPolicy": "best"}}}, "nodeSchedulerPolicy"),
        ({"trustedAccounts": ["it's"]}, "trustedAccounts"),
        ({"trustedAccounts": ["a b"]}, "trustedAccounts"),
        ({"global": {"imageRegistry": "https://example.com"}}, "imageRegistry"),
        ({"global": {"imageTag": "1.0 "}}, "imageTag"),
        ({"scheduler": {"kubeScheduler": {"image": {"tag": ""}}}}, "tag"),
        ({"scheduler": {"extender": {"image": {"repository": "Mine"}}}}, "repository"),
        ({"scheduler": {"extender": {"resources": {"limits": {"memory": "1 Gi"}}}}}, "memory"),
        ({"scheduler": {"leaderElect": True}}, "leaderElect"),
        ({"rawKeys": ["gpu"]}, "rawKeys"),
        ({"holds": {"enabled": "yes"}}, "holds"),
        ({"taintHeldCards": True}, "taintHeldCards"),
    ],
)
def test_a_wrong_value_is_named(change: Json, field: str) -> None:
    with pytest.raises(jsonschema_rs.ValidationError) as caught:
        jsonschema_rs.Draft7Validator(SCHEMA).validate(change)
    assert field in f"{caught.value.instance_path} {caught.value.message}"


@pytest.mark.parametrize(
    "registry", ["", "example.com", "example.com:5000", "localhost:5000/team/gpu", "10.0.0.1/x-y_z"]
)
def test_a_registry_may_have_a_port_and_folders(registry: str) -> None:
    jsonschema_rs.Draft7Validator(SCHEMA).validate({"global": {"imageRegistry": registry}})


def test_helm_refuses_a_wrong_value_and_metrics_without_a_port() -> None:
    helm = program("helm")
    with pytest.raises(RenderError, match="mode"):
        by_helm(helm, "--set=mode=daemon")
    with pytest.raises(RenderError, match="schedulerName: default-scheduler is the cluster's own scheduler"):
        by_helm(helm, "--set=schedulerName=default-scheduler")
    assert by_helm(helm, "--set=schedulerName=default-scheduler", "--set=mode=sidecar")
    with pytest.raises(RenderError, match=r"prometheus\.enabled needs api\.enabled"):
        by_helm(helm, "--set=prometheus.enabled=true")


def test_alerts_are_the_same_as_an_object() -> None:
    manifests = CHART.parents[1] / "manifests"
    rule = yaml.safe_load((manifests / "install" / "components" / "monitoring" / "prometheusrule.yaml").read_text())
    assert rule["spec"] == yaml.safe_load((manifests / "monitoring" / "alerts.yaml").read_text())


def test_files_of_the_chart_are_the_manifests_themselves() -> None:
    """Links, so that a rule that is added to one is in the other."""
    files = list((CHART / "files").iterdir())
    assert files
    for each in files:
        assert each.is_symlink()
        assert each.resolve().is_relative_to(CHART.parents[1] / "manifests")
        assert each.resolve().is_file()
