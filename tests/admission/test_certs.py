"""`certs` over files and Secrets: run again and again, interrupted at every step, and run twice at once."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from accounting.vendor import NVIDIA
from extender.admission.configurations import Target, configurations
from extender.admission.settings import AdmissionSettings
from extender.cli import _parser, main
from extender.commands import certs_live
from extender.commands.certs import read_files, renew_files
from extender.commands.certs_plan import Files, Plan
from extender.kube.client import KubeClient
from extender.security.pki import why_renew
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer

pytestmark = pytest.mark.real_time

HOST = ("--host", "127.0.0.1")
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
_SECRETS = "/api/v1/namespaces/kube-system/secrets"
NOW = datetime.now(UTC)
PLAN = Plan(("127.0.0.1",), timedelta(days=365), timedelta(days=120))


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_are_made_once_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "tls"
    assert main(["certs", "--directory", str(folder), *HOST, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["renewed"], told["why"]) == (True, "there is none")
    made = read_files(folder)
    assert why_renew(made.certificate, made.key, made.authorities, ["127.0.0.1"], NOW, timedelta(1)) == ""
    assert (folder / "tls.key").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in folder.iterdir()) == ["ca.crt", "tls.crt", "tls.key"]
    assert main(["certs", "--directory", str(folder), *HOST]) == 0
    assert "the certificate is good until" in capsys.readouterr().out
    assert read_files(folder) == made


def test_files_are_renewed_in_time_and_the_old_authority_stays_trusted(tmp_path: Path) -> None:
    assert renew_files(tmp_path, PLAN, NOW) == "there is none"
    old = read_files(tmp_path)
    later = NOW + timedelta(days=300)
    assert renew_files(tmp_path, PLAN, later).startswith("it expires at ")
    new = read_files(tmp_path)
    assert new.certificate != old.certificate
    assert new.authorities.endswith(old.authorities)
    for files in (old, new):
        assert why_renew(files.certificate, files.key, new.authorities, PLAN.hosts, NOW, timedelta(1)) == ""
    assert renew_files(tmp_path, PLAN, later) == ""


def test_a_broken_pair_is_replaced(tmp_path: Path) -> None:
    renew_files(tmp_path, PLAN, NOW)
    (tmp_path / "tls.key").write_bytes(b"junk")
    assert renew_files(tmp_path, PLAN, NOW) == "it cannot be read"
    assert renew_files(tmp_path, PLAN, NOW) == ""


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--directory", "{}"], "error: --host: (absent): "),
        (["--directory", "{}/file/x", *HOST], "error: --directory: "),
        (["--directory", "{}", *HOST, "--days", "10", "--renew-before-days", "10"], "error: --renew-before-days: 10: "),
        (["--directory", "{}", *HOST, "--in-cluster"], "error: --in-cluster: True: is for --secret"),
        (["--directory", "{}", *HOST, "--webhook-configuration", "x"], "error: --webhook-configuration: "),
        (["--directory", "{}", "--host", "not a host"], "not a host: must be a DNS subdomain"),
        (["--directory", "{}", "--secret", "a/b"], "not allowed with argument"),
        ([], "one of the arguments --directory --secret is required"),
        (["--secret", "a"], "error: --secret: a: must be NAMESPACE/NAME"),
        (["--secret", "a/b/c", "--in-cluster"], "error: --secret: a/b/c: must be NAMESPACE/NAME"),
        (["--secret", "a/b"], "error: --kubeconfig, --in-cluster: (both or none): "),
        (["--secret", "a/b", "--kubeconfig", "/nowhere"], "error: --kubeconfig: /nowhere: no such file"),
        (["--directory", "{}", *HOST, "--days", "0"], "0: must be days from 1 to 36500"),
    ],
)
def test_wrong_flags_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: list[str], said: str
) -> None:
    (tmp_path / "file").touch()
    try:
        status: object = main(["certs", *(flag.format(tmp_path) for flag in flags)])
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


# -- a Secret ----------------------------------------------------------------------------------------------------------


class Kube:
    """An API server with both configurations, and runs of the command against it."""

    def __init__(self, api: ApiServer, session: aiohttp.ClientSession, kubeconfig: Path) -> None:
        self.api = api
        self._session = session
        self.kubeconfig = kubeconfig

    async def send(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - whatever it said
        async with self._session.request(method, self.api.url + path, json=body) as response:
            return await response.json()

    async def run(self, *flags: str) -> tuple[str, Files]:
        """Run the command in this loop; return why something was renewed, and what is there."""
        given = ["certs", "--secret", "kube-system/tls", "--kubeconfig", str(self.kubeconfig), *flags]
        why, files, _ = await certs_live.renew_secret(_parser().parse_args(given))
        return why, files

    async def secret(self) -> Files:
        data = (await self.send("GET", f"{_SECRETS}/tls")).get("data", {})
        return Files(*(base64.b64decode(data.get(key, "")) for key in ("tls.crt", "tls.key", "ca.crt")))

    async def bundles(self) -> list[bytes]:
        """Return the bundle of every webhook."""
        found = []
        for kind in ("mutating", "validating"):
            configuration = await self.send("GET", f"{_CONFIGURATIONS}/{kind}webhookconfigurations/gpu-extender")
            found += [webhook["clientConfig"].get("caBundle", "") for webhook in configuration["webhooks"]]
        return list(map(base64.b64decode, found))

    async def trusts_what_is_served(self) -> bool:
        files = await self.secret()
        if not files.certificate:
            return True
        return all(
            why_renew(files.certificate, files.key, bundle, (), NOW, timedelta(0)) == ""
            for bundle in await self.bundles()
        )


@asynccontextmanager
async def kube(tmp_path: Path, capsys: pytest.CaptureFixture[str] | None = None) -> AsyncIterator[Kube]:
    async with ApiServer() as api, aiohttp.ClientSession() as session:
        cluster = Kube(api, session, write_kubeconfig(tmp_path / "kc", api.url))
        for made in configurations((NVIDIA,), AdmissionSettings(), Target()):
            await cluster.send("POST", f"{_CONFIGURATIONS}/{made['kind'].lower()}s", made)
        yield cluster


async def test_a_secret_is_made_once_and_every_webhook_trusts_it(tmp_path: Path) -> None:
    async with kube(tmp_path) as cluster:
        why, files = await cluster.run()
        assert why == "there is none"
        assert await cluster.secret() == files
        assert await cluster.bundles() == [files.authorities] * 5
        hosts = ("gpu-extender-webhook.kube-system.svc", "gpu-extender-webhook.kube-system.svc.cluster.local")
        assert why_renew(files.certificate, files.key, files.authorities, hosts, NOW, timedelta(1)) == ""
        assert await cluster.run() == ("", files)


async def test_a_renewal_trusts_the_new_authority_beside_the_old_one(tmp_path: Path) -> None:
    async with kube(tmp_path) as cluster:
        _, old = await cluster.run("--days", "100", "--renew-before-days", "10")
        why, new = await cluster.run("--renew-before-days", "120")
        assert why.startswith("it expires at ")
        assert new.authorities.endswith(old.authorities)
        assert await cluster.bundles() == [new.authorities] * 5
        assert await cluster.secret() == new


async def test_a_bundle_that_was_lost_is_written_again(tmp_path: Path) -> None:
    """`kubectl replace` does this, with a manifest that has none."""
    async with kube(tmp_path) as cluster:
        _, files = await cluster.run()
        path = f"{_CONFIGURATIONS}/validatingwebhookconfigurations/gpu-extender"
        found = await cluster.send("GET", path)
        del found["webhooks"][2]["clientConfig"]["caBundle"]
        await cluster.send("PUT", path, found)
        assert await cluster.run() == ("", files)
        assert await cluster.bundles() == [files.authorities] * 5


async def test_a_run_that_breaks_off_anywhere_leaves_what_is_served_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = KubeClient.request
    async with kube(tmp_path) as cluster:
        await cluster.run("--days", "100", "--renew-before-days", "10")
        for step in range(1, 20):
            sent = 0

            async def breaking(self: KubeClient, *given: Any, **more: Any) -> Any:  # noqa: ANN401
                nonlocal sent
                sent += 1
                if sent == step:  # noqa: B023 - called in this round only
                    raise ConnectionResetError
                return await real(self, *given, **more)

            with monkeypatch.context() as patch:
                patch.setattr(KubeClient, "request", breaking)
                try:
                    await cluster.run()
                except ConnectionResetError:
                    assert await cluster.trusts_what_is_served()
                    continue
            break
        else:
            pytest.fail("the run never ended")
        # Read, twice read and write the configurations, write the Secret; the last round was not interrupted.
        assert step > 5
        assert await cluster.trusts_what_is_served()
        assert (await cluster.run())[0] == ""


async def test_two_runs_at_once_leave_one_pair_that_is_trusted(tmp_path: Path) -> None:
    async with kube(tmp_path) as cluster:
        await asyncio.gather(*(cluster.run() for _ in range(4)))
        assert await cluster.trusts_what_is_served()
        why, files = await cluster.run()
        assert why == ""
        assert all(files.authorities in bundle for bundle in await cluster.bundles())


async def test_a_write_that_is_late_drops_no_authority_that_another_run_has_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run does all of its work between a run's reading of a configuration and its writing."""
    real = KubeClient.request
    async with kube(tmp_path) as cluster:
        for kind in ("mutating", "validating"):
            await cluster.run("--days", "100", "--renew-before-days", "10")
            await cluster.send("DELETE", f"{_SECRETS}/tls")
            was_overtaken = False

            async def late(self: KubeClient, method: str, path: str, **more: Any) -> Any:  # noqa: ANN401
                nonlocal was_overtaken
                is_it = method == "PATCH" and f"{kind}webhookconfigurations" in path  # noqa: B023 - in this round only
                if is_it and not was_overtaken:
                    was_overtaken = True
                    await cluster.run()
                answer = await real(self, method, path, **more)
                assert await cluster.trusts_what_is_served()
                return answer

            with monkeypatch.context() as patch:
                patch.setattr(KubeClient, "request", late)
                await cluster.run()
            assert was_overtaken
            assert (await cluster.run())[0] == ""


async def test_a_configuration_that_changes_all_the_time_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = KubeClient.request
    async with kube(tmp_path) as cluster:
        path = f"{_CONFIGURATIONS}/mutatingwebhookconfigurations/gpu-extender"
        number = 0

        async def restless(self: KubeClient, method: str, *given: Any, **more: Any) -> Any:  # noqa: ANN401
            nonlocal number
            if method == "PATCH":
                number += 1
                found = await cluster.send("GET", path)
                found["metadata"]["labels"] = {"number": str(number)}
                await cluster.send("PUT", path, found)
            return await real(self, method, *given, **more)

        monkeypatch.setattr(certs_live, "_RETRY_SECONDS", 0.0)
        monkeypatch.setattr(KubeClient, "request", restless)
        with pytest.raises(certs_live.CertsError, match="or a webhook configuration is written by somebody else all"):
            await cluster.run()
        assert number == 5
        assert await cluster.secret() == Files()


async def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    async with kube(tmp_path) as cluster:
        with pytest.raises(certs_live.CertsError, match="--webhook-configuration: other: is not among the mutating"):
            await cluster.run("--webhook-configuration", "other")
        assert await cluster.secret() == Files()


def test_the_command_over_a_secret_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = asyncio.new_event_loop()
    try:
        context = kube(tmp_path)
        cluster = loop.run_until_complete(context.__aenter__())
        given = ["certs", "--secret", "kube-system/tls", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
        told = loop.run_until_complete(asyncio.to_thread(main, given))
        assert told == 0
        assert json.loads(capsys.readouterr().out)["where"] == "secret kube-system/tls"
        loop.run_until_complete(context.__aexit__(None, None, None))
    finally:
        loop.close()
