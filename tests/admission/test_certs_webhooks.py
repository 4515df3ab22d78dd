"""`certs --webhooks`: no webhook is on before the extender serves the certificate that the API server will trust."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from extender.cli import _parser, main
from extender.commands import certs_live
from extender.config import Settings
from tests.apiserver.kubeconfig import write_kubeconfig
from tests.apiserver.server import ApiServer
from tests.virtual_time import until

pytestmark = pytest.mark.real_time

_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
_SECRETS = "/api/v1/namespaces/kube-system/secrets"
_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class Installing:
    """An API server whose configurations have no webhooks, and an extender that answers or not."""

    def __init__(self, api: ApiServer, session: aiohttp.ClientSession, folder: Path) -> None:
        self.api = api
        self._session = session
        self._folder = folder
        self._kubeconfig = write_kubeconfig(folder / "kc", api.url)
        self.port = 0
        self.status = 503
        self._runner: web.AppRunner | None = None

    async def send(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - whatever it said
        async with self._session.request(method, self.api.url + path, json=body) as response:
            return await response.json()

    def flags(self, *more: str) -> list[str]:
        given = ["--secret=kube-system/tls", f"--kubeconfig={self._kubeconfig}", "--host=127.0.0.1", "--webhooks"]
        return ["certs", *given, f"--url=https://127.0.0.1:{self.port}", *more]

    async def run(self, *more: str, settings: Settings | None = None) -> certs_live.Outcome:
        return await certs_live.renew_secret(_parser().parse_args(self.flags(*more)), settings or Settings())

    async def webhooks(self) -> list[dict[str, Any]]:
        found = [await self.send("GET", f"{_CONFIGURATIONS}/{kind.lower()}s/gpu-extender") for kind in _KINDS]
        return [webhook for each in found for webhook in each.get("webhooks", [])]

    async def until_on(self) -> None:
        await until(self._is_on)

    async def _is_on(self) -> bool:
        return len(await self.webhooks()) == 5

    async def answer(self) -> None:
        """Serve /readyz with the certificate of the Secret, as the extender does once its volume is there."""
        data = (await self.send("GET", f"{_SECRETS}/tls"))["data"]
        for name in ("tls.crt", "tls.key"):
            (self._folder / name).write_bytes(base64.b64decode(data[name]))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._folder / "tls.crt", self._folder / "tls.key")
        app = web.Application()
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _readyz(self, _request: web.Request) -> web.Response:
        return web.Response(status=self.status)

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


@asynccontextmanager
async def installing(folder: Path) -> AsyncIterator[Installing]:
    async with ApiServer() as api, aiohttp.ClientSession() as session:
        cluster = Installing(api, session, folder)
        for kind in _KINDS:
            body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "gpu-extender"}}
            await cluster.send("POST", f"{_CONFIGURATIONS}/{kind.lower()}s", body)
        try:
            yield cluster
        finally:
            await cluster.stop()


async def test_whole_devices_are_judged_at_creation_where_the_certificates_command_knows_them(tmp_path: Path) -> None:
    async with installing(tmp_path) as cluster:
        whole = Settings(raw_keys=("example.com/whole",))
        cluster.status = 200
        await cluster.run(settings=whole)
        await cluster.answer()
        await cluster.run(settings=whole)
        found = {webhook["name"].partition(".")[0]: webhook for webhook in await cluster.webhooks()}
        assert found["machine"]["rules"][0]["resources"] == ["virtualmachineinstances"]
        (concerned,) = (each["expression"] for each in found["create"]["matchConditions"])
        assert "example.com/whole" in concerned


async def test_webhooks_come_to_life_when_the_extender_answers_and_not_before(tmp_path: Path) -> None:
    async with installing(tmp_path) as cluster:
        off = await cluster.run()
        assert (off.why, await cluster.webhooks()) == ("there is none", [])
        assert "127.0.0.1:0" in off.off
        await cluster.answer()
        # The extender is reached, and says that it has not read the cluster.
        assert (await cluster.run()).off == f"127.0.0.1:{cluster.port}/readyz: 503"
        assert await cluster.webhooks() == []
        cluster.status = 200
        on = await cluster.run()
        assert (on.why, on.off) == ("", "")
        found = await cluster.webhooks()
        assert [each["name"].partition(".")[0] for each in found] == ["mutate", "create", "update", "binding", "debug"]
        assert {each["failurePolicy"] for each in found} == {"Fail"}
        assert {base64.b64decode(each["clientConfig"]["caBundle"]) for each in found} == {on.files.authorities}


async def test_webhooks_that_are_on_stay_on_while_nobody_answers(tmp_path: Path) -> None:
    async with installing(tmp_path) as cluster:
        await cluster.run()
        await cluster.answer()
        cluster.status = 200
        await cluster.run()
        before = await cluster.webhooks()
        cluster.status = 503
        assert (await cluster.run()).off == ""
        assert await cluster.webhooks() == before
        # A new version wants to be asked about other writes: nothing is written until it answers.
        changed = ("--trusted-account=system:serviceaccount:gpu:other",)
        assert (await cluster.run(*changed)).off
        assert await cluster.webhooks() == before
        cluster.status = 200
        assert (await cluster.run(*changed)).off == ""
        assert "gpu:other" in json.dumps(await cluster.webhooks())


async def test_a_certificate_that_the_api_server_would_not_trust_keeps_them_off(tmp_path: Path) -> None:
    async with installing(tmp_path) as cluster:
        await cluster.run()
        await cluster.answer()
        cluster.status = 200
        # The Secret has a new authority, and the old pair is still served.
        await cluster.send("DELETE", f"{_SECRETS}/tls")
        assert "certificate verify failed" in (await cluster.run()).off
        assert await cluster.webhooks() == []


async def test_a_certificate_of_others_is_trusted_and_never_written(tmp_path: Path) -> None:
    async with installing(tmp_path) as cluster:
        with pytest.raises(certs_live.CertsError, match=r"--secret: kube-system/tls: has no tls.crt and ca.crt yet"):
            await cluster.run("--issued-by-others")
        made = await cluster.run()
        await cluster.answer()
        cluster.status = 200
        old = ("--issued-by-others", "--days=100", "--renew-before-days=99")
        outcome = await cluster.run(*old)
        assert (outcome.why, outcome.off, outcome.files) == ("", "", made.files)
        assert len(await cluster.webhooks()) == 5


async def test_it_stays_and_looks_again(tmp_path: Path) -> None:
    async with installing(tmp_path) as cluster:
        await cluster.run()
        await cluster.answer()
        arguments = _parser().parse_args(cluster.flags("--every=0.05"))
        staying = asyncio.create_task(certs_live.renew_every(arguments, Settings()))
        try:
            cluster.status = 200

            await cluster.until_on()
            path = f"{_CONFIGURATIONS}/validatingwebhookconfigurations/gpu-extender"
            found = await cluster.send("GET", path)
            await cluster.send("PUT", path, found | {"webhooks": []})
            await cluster.until_on()
        finally:
            staying.cancel()
            await asyncio.gather(staying, return_exceptions=True)


@pytest.mark.parametrize("flag", ["--webhooks", "--every=5", "--issued-by-others", "--url=https://h:1"])
def test_flags_of_a_secret_are_refused_for_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str) -> None:
    assert main(["certs", "--directory", str(tmp_path), "--host", "h", flag]) == 2
    assert f"error: {flag.partition('=')[0]}: " in capsys.readouterr().err
