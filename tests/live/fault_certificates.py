"""The webhooks' certificate in a run under faults: who serves by it, who trusts it, and how it changes.

It exists because a certificate changes in steps of three parties, the command `certs`, kubelets and replicas, and a
fault can come between any two. It must not make certificates. Invariant: the webhooks are asked as the API server asks,
by the name and the authorities that the webhook configurations have at that moment.
"""

import argparse
import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import aiohttp

from accounting.vendor import NVIDIA
from extender.admission.configurations import NAME as CONFIGURATIONS
from extender.admission.configurations import Target, configurations
from extender.admission.settings import AdmissionSettings
from extender.commands import certs, certs_live
from extender.config import Settings
from extender.kube.client import KubeClient
from extender.kube.connection import Connection
from extender.security.pki import why_renew
from tests.apiserver.resources import MUTATING, SECRETS, VALIDATING
from tests.extender.objects import Json
from tests.live.fault_harms import Harms
from tests.live.fault_volume import AUTHORITIES, CERTIFICATE, KEY, NAME, NAMESPACE, Volume, secret_of
from tests.live.fault_world import PATIENCE_SECONDS, Violation, World, now
from tests.live.harness import Extender
from tests.virtual_time import passes

_OPTIONS = argparse.ArgumentParser()
certs.add_options(_OPTIONS)
TARGETS = ("secrets", "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_TARGET = Target()
_SERVER_NAME = f"{_TARGET.service}.{_TARGET.namespace}.svc"
#: As long as an API server waits for a webhook.
_REVIEW_SECONDS = aiohttp.ClientTimeout(5.0)
#: A kubelet shows a changed Secret after a minute at the latest.
_KUBELET_SECONDS = (1.0, 60.0)
_CHANGES, _DAYS, _BROKEN_OFF_SHARE = 2, 100, 0.3


class Webhooks:
    """The webhook configurations, the Secret, and the volumes of all replicas."""

    def __init__(self, world: World, folder: Path) -> None:
        """`folder`: an empty one."""
        self._world, self._folder = world, folder
        self._chance = Random(f"{world.outcome.seed} certificates")
        self.days = _DAYS
        """How long a certificate lasts that is made now; what was made before with fewer days is due."""
        self.untrusted: list[str] = []
        """Every write after which the API server did not trust what the Secret has."""

    async def begin(self) -> None:
        """Make the first certificate, and let every webhook trust it."""
        for made in configurations((NVIDIA,), AdmissionSettings(), _TARGET):
            self._world.kube.send("POST", f"/apis/{made['apiVersion']}/{made['kind'].lower()}s", made)
        for resource in (SECRETS, MUTATING, VALIDATING):
            self._world.api.store.listen(resource, self._written)
        await self.renew("a")
        for name in ("a", "b"):
            folder = self._folder / name
            folder.mkdir()
            self._world.volumes[name] = Volume(self._world.api, folder)

    async def renew(self, name: str) -> str:
        """Run `certs` once, beside a replica; return why it made a certificate, "" if none was due."""
        limits = [f"--days={self.days}", f"--renew-before-days={self.days - _DAYS // 2}"]
        run = certs_live._made(
            _OPTIONS.parse_args([f"--secret={NAMESPACE}/{NAME}", "--in-cluster", *limits]), Settings()
        )
        client = KubeClient(Connection(self._world.as_client(f"{name}-certs")))
        try:
            return (await run.once(client)).why
        finally:
            await client.close()

    async def follow(self, name: str) -> None:
        """Show a replica the Secret as its kubelet does."""
        while True:
            await passes(self._chance.uniform(*_KUBELET_SECONDS))
            self._world.volumes[name].sync()

    async def ask(self, one: Extender, path: str, body: bytes) -> bytes | None:
        """Ask a replica as the API server does; None if it cannot be reached. Raises Violation if it is not trusted."""
        trust = ssl.create_default_context(cadata=self._bundles()[path].decode())
        connector = aiohttp.TCPConnector(ssl=trust, force_close=True)
        async with aiohttp.ClientSession(one.webhooks_url, connector=connector, timeout=_REVIEW_SECONDS) as client:
            try:
                async with client.post(path, data=body, server_hostname=_SERVER_NAME) as response:
                    return await response.read() if response.status == 200 else None
            except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
                raise Violation(f"seed {self._world.outcome.seed}: what is served is not trusted: {error}") from None
            except (aiohttp.ClientError, TimeoutError):
                # It was killed meanwhile.
                return None

    async def served(self, one: Extender) -> bytes:
        """Return the certificate that a replica shows, DER."""
        host, _, port = one.webhooks_url.removeprefix("https://").partition(":")
        trust = ssl.create_default_context(cadata=self._bundles()["/mutate"].decode())
        _, writer = await asyncio.open_connection(host, int(port), ssl=trust, server_hostname=_SERVER_NAME)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return shown

    def _bundles(self) -> dict[str, bytes]:
        """Return whom the API server trusts, by path."""
        webhooks = self._all_webhooks()
        return {
            each["clientConfig"]["service"]["path"]: base64.b64decode(each["clientConfig"].get("caBundle", ""))
            for each in reversed(webhooks)
        }

    def _all_webhooks(self) -> list[Json]:
        rows = [self._world.api.store.get(kind, CONFIGURATIONS) for kind in (MUTATING, VALIDATING)]
        return [each for row in rows if row is not None for each in row.decode()["webhooks"]]

    def _written(self) -> None:
        files = secret_of(self._world.api)
        for each in self._all_webhooks() if files else ():
            bundle = base64.b64decode(each["clientConfig"].get("caBundle", ""))
            why = why_renew(files[CERTIFICATE], files[KEY], bundle, (), datetime.now(UTC), timedelta())
            if why:
                self.untrusted.append(f"{each['name']}: {why}")


class CertificateChange:
    """Renewals by two at once, while something goes wrong."""

    def __init__(self, world: World, webhooks: Webhooks, harms: Harms) -> None:
        self._world, self._webhooks, self._harms = world, webhooks, harms
        self._chance = Random(f"{world.outcome.seed} renewals")
        harms.targets += TARGETS

    async def begin(self) -> None:
        """Nothing: `Webhooks` has made the first certificate."""

    async def play(self) -> None:
        """Change the certificate, and ask every replica by whatever it serves then."""
        self._world.outcome.activities["certificate change"] += 1
        for _ in range(_CHANGES):
            self._webhooks.days += _DAYS
            renewing = [asyncio.create_task(self._renew(name)) for name in ("a", "b")]
            await asyncio.sleep(0)
            await self._harms.any()
            if self._chance.random() < _BROKEN_OFF_SHARE:
                renewing[0].cancel()
            await asyncio.gather(*renewing)
            await self._ask_all()

    async def settle(self) -> None:
        """Every replica serves the newest certificate, every webhook trusts it, and none is due."""
        end = now() + PATIENCE_SECONDS
        while not await self._renew("a"):
            self._world.must(now() < end, "the certificate is never renewed")
            await passes(1.0)
        why = await self._webhooks.renew("b")
        self._world.must(not why, f"a certificate that was just made is due: {why}")
        newest = secret_of(self._world.api)
        self._world.must(AUTHORITIES in newest, f"the Secret has only {sorted(newest)}")
        wanted = ssl.PEM_cert_to_DER_cert(newest[CERTIFICATE].decode())
        for one in list(self._world.replicas.values()):
            while await self._webhooks.served(one) != wanted:
                self._world.must(now() < end, "a replica never serves the new certificate")
                await passes(5.0)
        await self._ask_all()

    async def _renew(self, name: str) -> bool:
        """Run `certs` once; return whether it has done what was due."""
        try:
            made = await self._webhooks.renew(name)
        except certs_live.CertsError:
            self._world.outcome.activities["renewals that failed"] += 1
            return False
        except asyncio.CancelledError:
            self._world.outcome.activities["renewals broken off"] += 1
            return False
        self._world.outcome.activities["certificates"] += bool(made)
        return True

    async def _ask_all(self) -> None:
        for one in list(self._world.replicas.values()):
            for path in ("/mutate", "/validate"):
                await self._webhooks.ask(one, path, b"{}")
        self._world.must(not self._webhooks.untrusted, f"after a write: {self._webhooks.untrusted[:2]}")
