"""`certs --secret`: the certificate in a Secret, and its authorities in the webhook configurations.

It must not know how certificates are made. Invariants: whatever fails in between, the next run can continue, and the
API server trusts the served certificate; of two runs at the same time only one writes the Secret.
"""

import argparse
import asyncio
import base64
import signal
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple

from extender.admission.configurations import Target
from extender.admission.settings import AdmissionSettings
from extender.commands.certs_plan import AUTHORITIES, CERTIFICATE, KEY, Files, Plan, configuration_names, make_plan
from extender.commands.certs_requests import MERGE_PATCH, CertsError, check, decoded_object, request
from extender.commands.certs_webhooks import (
    KINDS,
    Webhooks,
    read_configuration,
    unchanged,
    wanted_webhooks,
    write_configuration,
)
from extender.commands.serve_live import connect
from extender.config import Settings
from extender.convert import InputError
from extender.kube.client import Answer, KubeClient
from extender.kube.paths import SECRETS, api_path
from extender.logs import logger
from extender.security import bundle_of
from extender.wire.names import why_no_label, why_no_subdomain

__all__ = ["CertsError", "Outcome", "renew_every", "renew_secret"]

_TRIES = 5
_RETRY_SECONDS = 1.0
_SERVICE_PORT = 443


class _Secret(NamedTuple):
    """A Secret as it was read; version "" if there is none."""

    files: Files
    version: str


class Outcome(NamedTuple):
    """The result of one run."""

    why: str
    """Why there is a new certificate; "" if none was due."""
    files: Files
    off: str = ""
    """Why the webhooks are not on yet; "" if they are on, or if that was not asked for."""


async def renew_secret(arguments: argparse.Namespace, settings: Settings | None = None) -> Outcome:
    """Renew the pair once, if it is due. Raises `InputError`."""
    run = _made(arguments, settings or Settings())
    client = await connect(arguments.kubeconfig)
    try:
        return await run.once(client)
    finally:
        await client.close()


async def renew_every(arguments: argparse.Namespace, settings: Settings) -> None:
    """Renew the pair whenever it is due, until SIGTERM or SIGINT. Raises `InputError` only for bad flags."""
    run = _made(arguments, settings)
    client = await connect(arguments.kubeconfig)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        while not stopped.is_set():
            seconds = await _looked(run, client, arguments.every)
            try:
                async with asyncio.timeout(seconds):
                    await stopped.wait()
            except TimeoutError:
                continue
    finally:
        await client.close()


async def _looked(run: "_Run", client: KubeClient, seconds: float) -> float:
    """Run once and log the result; returns the seconds until the next run."""
    try:
        outcome = await run.once(client)
    except CertsError as error:
        logger().error("certificate was not looked after", why=str(error))
        return min(seconds, _RETRY_SECONDS)
    if outcome.why:
        logger().info("new certificate", why=outcome.why)
    if outcome.off:
        logger().info("webhooks are off", why=outcome.off)
        return min(seconds, _RETRY_SECONDS)
    return seconds


class _Run(NamedTuple):
    """What the flags ask for."""

    namespace: str
    name: str
    configurations: list[str]
    plan: Plan | None
    """None if somebody else issues the certificate."""
    wanted: list[list[dict[str, Any]]] | None
    """The webhooks to turn on; None: they stay as they are."""
    address: str

    async def once(self, client: KubeClient) -> Outcome:
        """Do what is due. Raises `CertsError`."""
        why, files = await _Renewal(client, self.namespace, self.name, self.configurations, self.plan).run()
        if self.wanted is None:
            return Outcome(why, files)
        for name in self.configurations:
            webhooks = Webhooks(client, name, self.wanted, self.address)
            off = await webhooks.turn_on(files.authorities, datetime.now(UTC))
            if off:
                return Outcome(why, files, off)
        return Outcome(why, files)


def _made(arguments: argparse.Namespace, settings: Settings) -> _Run:
    """Return the run that the flags ask for. Raises `InputError`."""
    namespace, slash, name = arguments.secret.partition("/")
    if not slash or why_no_label(namespace) or why_no_subdomain(name):
        raise InputError("--secret", arguments.secret, "must be NAMESPACE/NAME")
    if bool(arguments.kubeconfig) == arguments.in_cluster:
        raise InputError("--kubeconfig, --in-cluster", "(both or none)", "a Secret needs one of them")
    target = Target(namespace, arguments.service, arguments.url or "")
    host = f"{arguments.service}.{namespace}.svc"
    plan = None if arguments.issued_by_others else make_plan(arguments, (host, f"{host}.cluster.local"))
    wanted = wanted_webhooks(settings, _admission(arguments), target) if arguments.webhooks else None
    address = target.url.removeprefix("https://").rstrip("/") or f"{host}:{_SERVICE_PORT}"
    return _Run(namespace, name, configuration_names(arguments), plan, wanted, address)


def _admission(arguments: argparse.Namespace) -> AdmissionSettings:
    accounts = arguments.trusted_account
    return AdmissionSettings(trusted_accounts=frozenset(accounts)) if accounts else AdmissionSettings()


class _Renewal:
    """One run."""

    def __init__(
        self, client: KubeClient, namespace: str, name: str, configurations: list[str], plan: Plan | None
    ) -> None:
        self._client = client
        self._namespace, self._name = namespace, name
        self._collection = api_path(SECRETS, namespace=namespace)
        self._path = api_path(SECRETS, name, namespace=namespace)
        self._configurations = configurations
        self._plan = plan

    async def run(self) -> tuple[str, Files]:
        """Do what is due."""
        for _ in range(_TRIES):
            now = datetime.now(UTC)
            secret = await self._read()
            why, files = self._due(secret.files, now)
            # Before the Secret, so that the served certificate is never newer than the trusted authorities.
            if await self._trust(files.authorities, now) and (not why or await self._write(files, secret.version)):
                return why, files
            await asyncio.sleep(_RETRY_SECONDS)
        what = f"{self._namespace}/{self._name}"
        raise CertsError("--secret", what, "it or a webhook configuration is written by somebody else all the time")

    def _due(self, found: Files, now: datetime) -> tuple[str, Files]:
        """Return why a new pair is needed, empty if none is, and what is to be there."""
        if self._plan is not None:
            why = self._plan.due(found, now)
            return why, self._plan.renewed(found, now) if why else found
        if not found.authorities or not found.certificate:
            raise CertsError(
                "--secret", f"{self._namespace}/{self._name}", f"has no {CERTIFICATE} and {AUTHORITIES} yet"
            )
        return "", found

    async def _read(self) -> _Secret:
        answer = await self._request("GET", self._path)
        if answer.status == HTTPStatus.NOT_FOUND:
            return _Secret(Files(), "")
        check(answer, "read the Secret")
        found = decoded_object(answer, "the Secret")
        data = found.get("data") or {}
        files = Files(*(_decoded(data.get(key)) for key in (CERTIFICATE, KEY, AUTHORITIES)))
        return _Secret(files, str(found["metadata"]["resourceVersion"]))

    async def _write(self, files: Files, version: str) -> bool:
        """Create the Secret, or change the version that was read; returns whether nobody else did so first."""
        values = {CERTIFICATE: files.certificate, KEY: files.key, AUTHORITIES: files.authorities}
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "kubernetes.io/tls",
            "data": {key: base64.b64encode(value).decode() for key, value in values.items()},
        }
        if version:
            change = {"metadata": {"resourceVersion": version}, "data": body["data"]}
            answer = await self._request("PATCH", self._path, change, MERGE_PATCH)
        else:
            answer = await self._request("POST", self._collection, body)
        if answer.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
            return False
        check(answer, "write the Secret")
        return True

    async def _trust(self, authorities: bytes, now: datetime) -> bool:
        """Add the authorities to every webhook of the configurations that does not trust them yet.

        Returns whether nobody else wrote one of them first. Authorities that are there stay, because another run may be
        about to serve a pair of theirs.
        """
        for kind in KINDS:
            for name in self._configurations:
                found = await read_configuration(self._client, kind, name)
                operations = _bundle_operations(found, authorities, now)
                if operations and not await write_configuration(self._client, kind, name, operations):
                    return False
        return True

    async def _request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Answer:
        return await request(self._client, method, path, body, content_type)


def _bundle_operations(configuration: dict[str, Any], authorities: bytes, now: datetime) -> list[dict[str, Any]]:
    """Return the JSON patch that makes every webhook trust them; empty if they do."""
    operations: list[dict[str, Any]] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        trusted = _decoded(webhook["clientConfig"].get("caBundle"))
        if authorities in trusted:
            continue
        bundle = base64.b64encode(bundle_of(authorities, trusted, now)).decode()
        operations.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle})
    return [unchanged(configuration), *operations] if operations else []


def _decoded(text: object) -> bytes:
    return base64.b64decode(text) if isinstance(text, str) else b""
