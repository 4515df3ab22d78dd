"""When a certificate is due, and what replaces it, wherever it is kept.

It must not read or write it. Invariant: trusted authorities stay trusted until they expire.
"""

import argparse
from dataclasses import dataclass
from datetime import datetime, timedelta

from extender.admission.configurations import NAME
from extender.convert import InputError
from extender.security import bundle_of, issue, why_renew

CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"


@dataclass(frozen=True, slots=True)
class Files:
    """A pair and the authorities to trust, PEM; empty where there are none."""

    certificate: bytes = b""
    key: bytes = b""
    authorities: bytes = b""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the flags ask for."""

    hosts: tuple[str, ...]
    lifetime: timedelta
    renew_before: timedelta

    def due(self, files: Files, now: datetime) -> str:
        """Return why a new pair is needed; empty if none is."""
        if not files.certificate and not files.key:
            return "there is none"
        return why_renew(files.certificate, files.key, files.authorities, self.hosts, now, self.renew_before)

    def renewed(self, files: Files, now: datetime) -> Files:
        """Return a new pair, and its authority followed by those that are still valid."""
        issued = issue(self.hosts, now, self.lifetime)
        return Files(issued.certificate, issued.key, bundle_of(issued.ca, files.authorities, now))


def make_plan(arguments: argparse.Namespace, default_hosts: tuple[str, ...]) -> Plan:
    """Return what the flags ask for. Raises `InputError`."""
    hosts = tuple(dict.fromkeys(arguments.host or default_hosts))
    if not hosts:
        raise InputError("--host", "(absent)", "a certificate in files needs the names by which it is asked for")
    if arguments.renew_before_days >= arguments.days:
        why = f"must be below --days, {arguments.days}, or every run would renew"
        raise InputError("--renew-before-days", str(arguments.renew_before_days), why)
    return Plan(hosts, timedelta(days=arguments.days), timedelta(days=arguments.renew_before_days))


def configuration_names(arguments: argparse.Namespace) -> list[str]:
    """Return the names of the webhook configurations that get the authorities."""
    return list(dict.fromkeys(arguments.webhook_configuration or [NAME]))
