"""`certs --webhooks`: the webhook configurations get their webhooks when the extender answers, and not before.

It exists because webhooks fail closed: configurations that are there before anybody answers would refuse pods while an
installation fails. It must not make certificates. Invariants: what is switched on was reached a moment before, by the
name, the port and the authorities that the API server is given; configurations that are as they should be are not
written.
"""

import asyncio
import base64
import http.client
import ssl
from datetime import datetime
from http import HTTPStatus
from typing import Any

from extender.admission.configurations import Target, configurations
from extender.admission.settings import AdmissionSettings, managed_vendors
from extender.commands.certs_requests import JSON_PATCH, CertsError, check, decoded_object, request
from extender.config import Settings
from extender.kube.client import KubeClient
from extender.kube.paths import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource, api_path
from extender.security import bundle_of

Json = dict[str, Any]

KINDS = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
_TIMEOUT_SECONDS = 5.0
_READY = "/readyz"


def readiness(address: str, authorities: bytes) -> str:
    """Ask the webhook port whether it answers reviews; returns why not, empty if it does.

    Args:
        address: HOST:PORT
        authorities: PEM; the port must show a certificate of one of them

    """
    try:
        context = ssl.create_default_context(cadata=authorities.decode())
        connection = http.client.HTTPSConnection(address, timeout=_TIMEOUT_SECONDS, context=context)
        try:
            connection.request("GET", _READY)
            status = connection.getresponse().status
        finally:
            connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{address}: {str(error) or type(error).__name__}"
    return "" if status == HTTPStatus.OK else f"{address}{_READY}: {status}"


def wanted_webhooks(settings: Settings, admission: AdmissionSettings, target: Target) -> list[list[Json]]:
    """Return the webhooks of each kind of KINDS, without caBundle."""
    return [
        each["webhooks"] for each in configurations(managed_vendors(settings), admission, target, settings.raw_keys)
    ]


class Webhooks:
    """The configurations of one name, and what they are to hold."""

    def __init__(self, client: KubeClient, name: str, wanted: list[list[Json]], address: str) -> None:
        self._client = client
        self._name = name
        self._wanted = wanted
        self._address = address

    async def turn_on(self, authorities: bytes, now: datetime) -> str:
        """Write the configurations that are not as they should be; returns why it cannot be yet, empty if all are.

        Raises `CertsError` if the API server does not do what it is asked.
        """
        found = [(kind, await read_configuration(self._client, kind, self._name)) for kind in KINDS]
        off = [
            (kind, each, wanted)
            for (kind, each), wanted in zip(found, self._wanted, strict=True)
            if not _holds(each.get("webhooks") or [], wanted)
        ]
        if not off:
            return ""
        why = await asyncio.to_thread(readiness, self._address, authorities)
        if why:
            return why
        for kind, each, wanted in off:
            operations = _operations(each, wanted, authorities, now)
            if not await write_configuration(self._client, kind, self._name, operations):
                return f"{kind.plural} {self._name}: written by somebody else meanwhile"
        return ""


async def read_configuration(client: KubeClient, kind: Resource, name: str) -> Json:
    """Return a configuration. Raises `CertsError`."""
    answer = await request(client, "GET", api_path(kind, name))
    if answer.status == HTTPStatus.NOT_FOUND:
        raise CertsError("--webhook-configuration", name, f"is not among the {kind.plural}")
    check(answer, f"read {kind.plural} {name}")
    return decoded_object(answer, f"{kind.plural} {name}")


async def write_configuration(client: KubeClient, kind: Resource, name: str, operations: list[Json]) -> bool:
    """Change a configuration by a JSON patch; returns whether nobody else did so first. Raises `CertsError`."""
    answer = await request(client, "PATCH", api_path(kind, name), operations, JSON_PATCH)
    if answer.status == HTTPStatus.CONFLICT:
        return False
    check(answer, f"write {kind.plural} {name}")
    return True


def unchanged(configuration: Json) -> Json:
    """Return the operation that makes a JSON patch a conflict if the configuration was written since it was read.

    Without it, of two runs at once one would drop the authority that the other has just added, and so would a late
    write. An operation `test` would fail as what is invalid fails, so that the two could not be told apart.
    """
    return {"op": "replace", "path": "/metadata/resourceVersion", "value": configuration["metadata"]["resourceVersion"]}


def _holds(webhooks: list[Json], wanted: list[Json]) -> bool:
    """Whether the API server has what is wanted, whatever it has filled in beside it."""
    return len(webhooks) == len(wanted) and all(map(_covers, webhooks, wanted))


def _covers(found: object, wanted: object) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and _covers(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(_covers, found, wanted))
    return found == wanted


def _operations(found: Json, wanted: list[Json], authorities: bytes, now: datetime) -> list[Json]:
    """Return the JSON patch; it fails if somebody else has written meanwhile. Who was trusted stays so."""
    bundles = [each["clientConfig"].get("caBundle", "") for each in found.get("webhooks") or ()]
    trusted = b"".join(base64.b64decode(each) for each in dict.fromkeys(bundles))
    bundle = base64.b64encode(bundle_of(authorities, trusted, now)).decode()
    webhooks = [each | {"clientConfig": each["clientConfig"] | {"caBundle": bundle}} for each in wanted]
    return [unchanged(found), {"op": "add", "path": "/webhooks", "value": webhooks}]
