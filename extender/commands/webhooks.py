"""Print the webhook configurations that make an API server ask the extender.

It must not reach a cluster: people apply the output themselves. Invariant: the same flags give the same bytes.
"""

import argparse
import base64
import sys
from pathlib import Path
from typing import Any

import orjson
import yaml

from extender.admission.configurations import Target, configurations
from extender.admission.settings import AdmissionSettings, managed_vendors
from extender.commands.arguments import add_service, add_trusted_account, namespace, object_name, path
from extender.config import Settings
from extender.convert import InputError

_WIDTH = 120


class _Dumper(yaml.SafeDumper):
    """A YAML writer that indents lists below their key and never writes aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - the library's signature
        return super().increase_indent(flow, False)  # noqa: FBT003 - the same


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    target = Target()
    parser.add_argument("--namespace", type=namespace, default=target.namespace, help="the extender's own")
    add_service(parser)
    ca = parser.add_mutually_exclusive_group()
    ca.add_argument("--ca-file", type=path, metavar="FILE", help="PEM, written into caBundle")
    ca.add_argument("--cert-manager", type=object_name, metavar="CERTIFICATE", help="let cert-manager write caBundle")
    add_trusted_account(parser)
    parser.add_argument("-o", "--output", choices=["yaml", "json"], default="yaml", help="format; default: yaml")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Print both configurations. Raises `InputError`."""
    objects = configurations(managed_vendors(settings), _admission(arguments), _target(arguments), settings.raw_keys)
    if arguments.output == "json":
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        sys.stdout.write(orjson.dumps(listed, option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write(as_yaml(objects))
    return 0


def as_yaml(objects: list[dict[str, Any]]) -> str:
    """Return the objects as YAML documents."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=_WIDTH)


def _admission(arguments: argparse.Namespace) -> AdmissionSettings:
    accounts = arguments.trusted_account
    return AdmissionSettings(trusted_accounts=frozenset(accounts)) if accounts else AdmissionSettings()


def _target(arguments: argparse.Namespace) -> Target:
    injected = f"{arguments.namespace}/{arguments.cert_manager}" if arguments.cert_manager else ""
    return Target(arguments.namespace, arguments.service, arguments.url or "", _ca_bundle(arguments.ca_file), injected)


def _ca_bundle(path: str | None) -> str:
    if path is None:
        return ""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise InputError("--ca-file", path, error.strerror or str(error)) from None
    if b"-----BEGIN CERTIFICATE-----" not in raw:
        raise InputError("--ca-file", path, "holds no PEM certificate")
    return base64.b64encode(raw).decode()
