"""Make the webhook port's certificate, or renew it when it is due; if nothing is due, nothing is written.

It must not serve. Invariants: repeated runs have the effect of one; between any two steps the API server trusts the
served certificate: first the new authority is added beside the old one, then the new pair is written where the extender
reads it.
"""

import argparse
import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import orjson

from extender.commands.arguments import (
    add_logs,
    add_output,
    add_service,
    add_trusted_account,
    days,
    host,
    natural,
    object_name,
    path,
    seconds,
)
from extender.commands.certs_plan import AUTHORITIES, CERTIFICATE, KEY, Files, Plan, make_plan
from extender.commands.common import print_lines
from extender.config import Settings
from extender.convert import InputError
from extender.logs import configure_logs
from extender.security import not_after


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--directory", type=path, metavar="DIR", help="write tls.crt, tls.key and ca.crt there")
    where.add_argument("--secret", metavar="NAMESPACE/NAME", help="write them into this Secret")
    parser.add_argument(
        "--host", action="append", type=host, metavar="HOST", help="DNS name or IP address of the webhooks, repeatable"
    )
    parser.add_argument(
        "--webhook-configuration",
        action="append",
        type=object_name,
        metavar="NAME",
        help="write caBundle into the webhook configurations of this name, repeatable; default: gpu-extender",
    )
    parser.add_argument("--kubeconfig", type=path, metavar="FILE", help="of the API server that holds them")
    parser.add_argument("--in-cluster", action="store_true", help="reach it as the pod's service account")
    parser.add_argument("--days", type=days, default=365, help="how long a certificate lasts")
    parser.add_argument(
        "--renew-before-days", type=natural, default=120, metavar="DAYS", help="renew what ends sooner; default: 120"
    )
    parser.add_argument(
        "--issued-by-others",
        action="store_true",
        help="the Secret is somebody else's, such as cert-manager's: never write it, only trust its ca.crt",
    )
    parser.add_argument(
        "--webhooks",
        action="store_true",
        help="give the webhook configurations their webhooks, once the extender answers by this certificate",
    )
    add_service(parser)
    add_trusted_account(parser)
    parser.add_argument(
        "--every", type=seconds, default=0.0, metavar="SECONDS", help="stay, and look again so often; default: once"
    )
    add_logs(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Make or renew the certificate if it is due. Raises `InputError`."""
    configure_logs(json=arguments.log_format == "json", level=arguments.log_level)
    if arguments.directory is not None:
        _check_flags_of_files(arguments)
        plan = make_plan(arguments, ())
        why = renew_files(Path(arguments.directory), plan, datetime.now(UTC))
        files = read_files(Path(arguments.directory))
        _tell(arguments, arguments.directory, why, files)
        return 0
    # The Kubernetes client takes a third of a second to import; files do not need it.
    from extender.commands import certs_live

    if arguments.every:
        asyncio.run(certs_live.renew_every(arguments, settings))
        return 0
    outcome = asyncio.run(certs_live.renew_secret(arguments, settings))
    if outcome.off:
        raise InputError("--webhooks", outcome.off, "does not answer, so the webhooks stay off")
    _tell(arguments, f"secret {arguments.secret}", outcome.why, outcome.files)
    return 0


def _check_flags_of_files(arguments: argparse.Namespace) -> None:
    for flag, value in (
        ("--webhook-configuration", arguments.webhook_configuration),
        ("--kubeconfig", arguments.kubeconfig),
        ("--in-cluster", arguments.in_cluster),
        ("--webhooks", arguments.webhooks),
        ("--every", arguments.every),
        ("--issued-by-others", arguments.issued_by_others),
        ("--url", arguments.url),
    ):
        if value:
            raise InputError(flag, str(value), "is for --secret; print configurations with `webhooks --ca-file`")


def renew_files(directory: Path, plan: Plan, now: datetime) -> str:
    """Renew a pair in files; returns why, "" if nothing was due. Raises `InputError`."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = read_files(directory)
        why = plan.due(files, now)
        if why:
            renewed = plan.renewed(files, now)
            # The authorities first: clients that read them now trust both the old and the new pair.
            _write(directory / AUTHORITIES, renewed.authorities, 0o644)
            _write(directory / CERTIFICATE, renewed.certificate, 0o644)
            _write(directory / KEY, renewed.key, 0o600)
    except OSError as error:
        raise InputError("--directory", str(directory), error.strerror or str(error)) from None
    return why


def read_files(directory: Path) -> Files:
    """Return what is there. Raises OSError."""
    return Files(*(_read(directory / name) for name in (CERTIFICATE, KEY, AUTHORITIES)))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file in one step; its mode is right from the first byte."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _tell(arguments: argparse.Namespace, where: str, why: str, files: Files) -> None:
    until = not_after(files.certificate).isoformat()
    if arguments.output == "json":
        told = {"where": where, "renewed": bool(why), "why": why, "not_after": until}
        sys.stdout.write(orjson.dumps(told).decode() + "\n")
    elif why:
        print_lines([f"{where}: new certificate, for {why}; it is good until {until}"])
    else:
        print_lines([f"{where}: the certificate is good until {until}"])
