"""The webhook port of `serve`: its certificate, its listener, and the end of both.

It must not judge anything. Invariant: what a person wrote wrong is said in one line before anything runs; without a
certificate there is no port.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from extender.admission.settings import AdmissionSettings, NearMiss, OtherScheduler, Privileged
from extender.config import ServerSettings
from extender.convert import InputError
from extender.security import ServingCertificate, TlsError
from extender.server import WEBHOOK_APP, start


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
    )


def read_certificate(arguments: argparse.Namespace) -> ServingCertificate | None:
    """Return the certificate that the flags name, if they do. Raises `InputError`."""
    cert, key = arguments.tls_cert_file, arguments.tls_private_key_file
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        missing = "--tls-cert-file" if cert is None else "--tls-private-key-file"
        raise InputError(missing, "(absent)", "both files of a pair must be given")
    try:
        return ServingCertificate(cert, key)
    except TlsError as error:
        raise InputError("--tls-cert-file, --tls-private-key-file", f"{cert}, {key}", str(error)) from None


@asynccontextmanager
async def webhook_port(
    app: web.Application, settings: ServerSettings, certificate: ServingCertificate | None
) -> AsyncIterator[str | None]:
    """Serve an application's webhooks by TLS; yields the address, None without a certificate. Raises `InputError`."""
    if certificate is None:
        yield None
        return
    try:
        runner, port = await start(app[WEBHOOK_APP], settings, certificate.context)
    except (OSError, OverflowError, UnicodeError) as error:
        address = f"{settings.webhook_bind_address}:{settings.webhook_port}"
        raise InputError("--webhook-bind-address, --webhook-port", address, str(error)) from None
    watching = asyncio.create_task(certificate.watch())
    try:
        yield f"https://{settings.webhook_bind_address}:{port}"
    finally:
        watching.cancel()
        await runner.cleanup()
