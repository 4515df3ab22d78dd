"""The ports of `serve`: their certificates, their listeners, and closing them.

It must not judge anything. Invariants: wrong input is reported in one line before anything runs; without a certificate
there is no webhook port, and neither tokens nor client certificates are used over plain HTTP.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from typing import NamedTuple

from aiohttp import web

from extender.admission.settings import AdmissionSettings, NearMiss, OtherScheduler, Privileged
from extender.config import ServerSettings
from extender.convert import InputError
from extender.logs import logger
from extender.security import ServingCertificate, TlsError
from extender.server import API_APP, WEBHOOK_APP, Listener, PortName, start

_PAIR = "--tls-cert-file and --tls-private-key-file"


class Certificates(NamedTuple):
    """The certificate of each port; None if it speaks plain HTTP or is not opened."""

    verbs: ServingCertificate | None = None
    webhooks: ServingCertificate | None = None
    api: ServingCertificate | None = None


class Urls(NamedTuple):
    """The addresses of the further ports; None for one that is not opened."""

    webhooks: str | None = None
    api: str | None = None

    def text(self) -> str:
        """Return a line for each open port."""
        webhooks = "" if self.webhooks is None else f"webhooks: {self.webhooks}/mutate, {self.webhooks}/validate\n"
        return webhooks + ("" if self.api is None else f"page, lists and metrics: {self.api}\n")


def admission_settings(arguments: argparse.Namespace) -> AdmissionSettings:
    """Return the settings that the flags give."""
    defaults = AdmissionSettings()
    return AdmissionSettings(
        scheduler_name=arguments.scheduler_name,
        other_scheduler=OtherScheduler(arguments.other_schedulers),
        replace_default_scheduler=arguments.replace_default_scheduler,
        default_count=arguments.default_gpu_count,
        privileged=Privileged(arguments.privileged),
        near_miss=NearMiss(arguments.near_miss),
        runtime_class=arguments.runtime_class_name,
        trusted_accounts=frozenset(arguments.trusted_account or defaults.trusted_accounts),
        launcher_accounts=frozenset(arguments.launcher_account or defaults.launcher_accounts),
    )


def server_settings(arguments: argparse.Namespace) -> ServerSettings:
    """Return the settings that the flags give."""
    return ServerSettings(
        bind_address=arguments.bind_address,
        port=arguments.port,
        verbs_client_ca=arguments.verbs_client_ca,
        webhook_bind_address=arguments.webhook_bind_address,
        webhook_port=arguments.webhook_port,
        webhook_client_ca=arguments.webhook_client_ca,
        api_bind_address=arguments.api_bind_address,
        api_port=arguments.api_port,
        allow_writes=arguments.allow_writes,
        metrics_per_card=arguments.metrics_per_card,
        metrics_per_pod=arguments.metrics_per_pod,
        metrics_hami_names=arguments.metrics_hami_names,
    )


def read_certificates(arguments: argparse.Namespace) -> Certificates:
    """Return the certificates that the flags name. Raises `InputError`."""
    cert, key = arguments.tls_cert_file, arguments.tls_private_key_file
    if cert is None and key is None:
        for flag, value in (
            ("--verbs-client-ca", arguments.verbs_client_ca),
            ("--webhook-client-ca", arguments.webhook_client_ca),
        ):
            if value is not None:
                raise InputError(flag, value, f"needs {_PAIR}")
        return Certificates()
    if cert is None or key is None:
        missing = "--tls-cert-file" if cert is None else "--tls-private-key-file"
        raise InputError(missing, "(absent)", "both files of a pair must be given")
    verbs_ca = arguments.verbs_client_ca
    try:
        return Certificates(
            None if verbs_ca is None else ServingCertificate(cert, key, verbs_ca),
            ServingCertificate(cert, key, arguments.webhook_client_ca),
            None if is_loopback(arguments.api_bind_address) else ServingCertificate(cert, key),
        )
    except TlsError as error:
        raise InputError("--tls-cert-file, --tls-private-key-file", f"{cert}, {key}", str(error)) from None


def check_ports(arguments: argparse.Namespace, *, live: bool) -> None:
    """Raise `InputError` for an API port beyond loopback without an API server to check tokens."""
    address = arguments.api_bind_address
    if arguments.api_port is not None and not is_loopback(address):
        if not live:
            raise InputError("--api-bind-address", address, "an embedded cluster cannot check tokens: use loopback")
        if arguments.tls_cert_file is None:
            raise InputError("--api-bind-address", address, f"tokens must not travel in plain text: needs {_PAIR}")


def is_loopback(address: str) -> bool:
    """Whether an address can be reached only from this host or pod."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


async def verbs_port(
    app: web.Application, settings: ServerSettings, certificates: Certificates
) -> tuple[Listener, str]:
    """Open the port of the verbs; returns it, to be cleaned up, and its address. Raises `InputError`.

    Warns if the verbs let in whoever reaches them.
    """
    opened = await _open(app, settings, PortName.VERBS, certificates.verbs, "--bind-address, --port")
    if certificates.verbs is None and not is_loopback(settings.bind_address):
        why = "whoever reaches it can bind pods; use loopback, or --verbs-client-ca"
        logger().warning("verbs are open", address=settings.bind_address, why=why)
    return opened


@asynccontextmanager
async def further_ports(
    app: web.Application, settings: ServerSettings, certificates: Certificates
) -> AsyncIterator[Urls]:
    """Serve the webhooks, if there is a certificate, and the lists, if they have a port. Raises `InputError`."""
    async with AsyncExitStack() as stack:
        for certificate in filter(None, certificates):
            watching = asyncio.create_task(certificate.watch())
            stack.callback(watching.cancel)
        webhooks = api = None
        if certificates.webhooks is not None:
            flags = "--webhook-bind-address, --webhook-port"
            listener, webhooks = await _open(
                app[WEBHOOK_APP], settings, PortName.WEBHOOKS, certificates.webhooks, flags
            )
            stack.push_async_callback(listener.cleanup)
        if settings.api_port is not None:
            flags = "--api-bind-address, --api-port"
            listener, api = await _open(app[API_APP], settings, PortName.API, certificates.api, flags)
            stack.push_async_callback(listener.cleanup)
        yield Urls(webhooks, api)


async def _open(
    app: web.Application, settings: ServerSettings, name: PortName, certificate: ServingCertificate | None, flags: str
) -> tuple[Listener, str]:
    address, wanted = name.where(settings)
    try:
        listener, port = await start(app, settings, None if certificate is None else certificate.context, name)
    except (OSError, OverflowError, UnicodeError) as error:
        raise InputError(flags, f"{address}:{wanted}", str(error)) from None
    return listener, f"{'http' if certificate is None else 'https'}://{address}:{port}"
