"""The webhook configurations in manifests/ follow from the table of vendors, and are narrow."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from accounting.vendor import NVIDIA
from extender.admission.configurations import Target, configurations
from extender.admission.settings import AdmissionSettings
from extender.cli import _parser, main

_MANIFESTS = Path(__file__).parents[2] / "manifests"
_INSTALL = _MANIFESTS / "install"


def _printed(capsys: pytest.CaptureFixture[str], *flags: str) -> list[dict[str, Any]]:
    assert main(["webhooks", *flags]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def _webhooks(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {webhook["name"].partition(".")[0]: webhook for each in objects for webhook in each["webhooks"]}


def test_the_manifest_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = (_MANIFESTS / "admission" / "webhooks.yaml").read_text()
    assert main(["webhooks"]) == 0
    printed = capsys.readouterr().out
    assert text.endswith(printed)
    assert all(line.startswith("#") for line in text.removesuffix(printed).splitlines())


def test_every_webhook_fails_closed_and_is_narrow(capsys: pytest.CaptureFixture[str]) -> None:
    objects = _printed(capsys)
    assert [each["kind"] for each in objects] == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    for webhook in _webhooks(objects).values():
        assert webhook["failurePolicy"] == "Fail"
        assert webhook["sideEffects"] == "None"
        assert webhook["timeoutSeconds"] == 5
        assert webhook["admissionReviewVersions"] == ["v1"]
        assert webhook["matchConditions"]
        excluded = webhook["namespaceSelector"]["matchExpressions"]
        assert {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]} in excluded
        assert {"key": "gpu-extender.io/webhook", "operator": "NotIn", "values": ["ignore"]} in excluded
        # The author of a pod could write its labels.
        assert "objectSelector" not in webhook
        assert "caBundle" not in webhook["clientConfig"]


def test_what_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {
        name: [(rule["operations"], rule["resources"]) for rule in webhook["rules"]]
        for name, webhook in _webhooks(_printed(capsys)).items()
    }
    assert asked == {
        "mutate": [(["CREATE"], ["pods"])],
        "create": [(["CREATE"], ["pods"])],
        "update": [(["UPDATE"], ["pods", "pods/status"])],
        "binding": [(["CREATE"], ["pods/binding", "bindings"])],
        "debug": [(["UPDATE"], ["pods/ephemeralcontainers"])],
    }


def test_further_vendors_need_no_change() -> None:
    other = replace(
        NVIDIA,
        count_resource="example.com/card",
        memory_resource="example.com/cardmem",
        memory_percentage_resource="example.com/cardmem-percentage",
        cores_resource="example.com/cardcores",
        devices_allocated_annotation="hami.io/card-devices-allocated",
    )
    webhooks = _webhooks(configurations((NVIDIA, other), AdmissionSettings(), Target()))
    (asks,) = webhooks["mutate"]["matchConditions"]
    for name in (*NVIDIA.resources, *other.resources):
        assert f"'{name}'" in asks["expression"]
    (concerns,) = webhooks["create"]["matchConditions"]
    assert "'example'" in concerns["expression"]
    for name in ("update", "binding"):
        assert "'hami.io/card-devices-allocated'" in webhooks[name]["matchConditions"][1]["expression"]


def test_addresses_and_authorities(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    objects = _printed(capsys, "--url", "https://127.0.0.1:9443/", "--ca-file", str(ca))
    for name, webhook in _webhooks(objects).items():
        path = "mutate" if name == "mutate" else "validate"
        bundle = base64.b64encode(ca.read_bytes()).decode()
        assert webhook["clientConfig"] == {"url": f"https://127.0.0.1:9443/{path}", "caBundle": bundle}
    objects = _printed(capsys, "--namespace", "gpu", "--service", "hook", "--cert-manager", "cert", "-o", "yaml")
    for each in objects:
        assert each["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "gpu/cert"}
    for webhook in _webhooks(objects).values():
        service = webhook["clientConfig"]["service"]
        assert (service["namespace"], service["name"], service["port"]) == ("gpu", "hook", 443)
        assert webhook["namespaceSelector"]["matchExpressions"][0]["values"] == ["gpu"]


def test_trusted_accounts_are_not_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    webhooks = _webhooks(_printed(capsys, "--trusted-account", "system:serviceaccount:gpu:plugin"))
    for name in ("update", "binding"):
        expression = webhooks[name]["matchConditions"][0]["expression"]
        assert expression == "!(request.userInfo.username in ['system:serviceaccount:gpu:plugin'])"


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--url", "http://x"], "http://x: must be https://HOST:PORT"),
        (["--url", "https://x/path"], "https://x/path: must be https://HOST:PORT"),
        (["--ca-file", "/nowhere/ca"], "error: --ca-file: /nowhere/ca: No such file or directory"),
        (["--trusted-account", "it's"], "it's: must be a user's name without quotes"),
        (["--namespace", "Gpu"], "Gpu: must be lower case letters, digits"),
        (["--ca-file", "x", "--cert-manager", "y"], "not allowed with argument"),
    ],
)
def test_wrong_flags_are_one_line_and_nothing_on_stdout(
    capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    try:
        status: object = main(["webhooks", *flags])
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def _documents(path: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((_INSTALL / path).read_text()) if each]


def _extender() -> dict[str, Any]:
    (deployment, _) = _documents("base/deployment.yaml")
    return deployment["spec"]["template"]["spec"]


def _certs_arguments() -> list[str]:
    (deployment,) = (each for each in _documents("base/certs.yaml") if each["kind"] == "Deployment")
    return deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_variants_name_the_same_secret_service_and_account() -> None:
    (service,) = _documents("base/service.yaml")
    pod = _extender()
    (secret,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == "tls")
    certificate = _documents("components/cert-manager/certificate.yaml")[-1]
    assert certificate["spec"]["secretName"] == secret["secretName"]
    assert certificate["spec"]["dnsNames"][0] == f"{service['metadata']['name']}.kube-system.svc"
    assert service["metadata"]["name"] == Target().service
    account = f"system:serviceaccount:kube-system:{pod['serviceAccountName']}"
    assert account in AdmissionSettings().trusted_accounts
    assert f"--secret=kube-system/{secret['secretName']}" in _certs_arguments()


def test_what_is_applied_asks_nobody_until_the_extender_answers() -> None:
    """Webhooks fail closed, so the applied configurations have none."""
    applied = _documents("base/webhooks.yaml")
    assert [(each["kind"], each["metadata"]["name"]) for each in applied] == [
        ("MutatingWebhookConfiguration", "gpu-extender"),
        ("ValidatingWebhookConfiguration", "gpu-extender"),
    ]
    assert not any("webhooks" in each for each in applied)
    given = _parser().parse_args(_certs_arguments())
    assert given.webhooks
    assert given.every > 0


def test_nothing_that_cannot_be_changed_by_the_next_version_is_installed() -> None:
    kinds = {each["kind"] for path in _INSTALL.glob("*/*.yaml") for each in _documents(str(path)) if "kind" in each}
    assert "Deployment" in kinds
    # A Job's template is immutable, so an upgrade of its image fails.
    assert not kinds & {"Job", "Pod", "StatefulSet"}


def test_the_flags_of_the_deployments_are_known() -> None:
    assert _parser().parse_args(_extender()["containers"][0]["args"]).in_cluster
    assert _parser().parse_args(_certs_arguments()).in_cluster
