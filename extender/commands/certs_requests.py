"""Requests of `certs` to the API server: an answer, or an error in one line.

It must not know certificates. Invariant: what is not said to have been done was not counted on.
"""

import json
from http import HTTPStatus
from typing import Any

from extender.convert import InputError
from extender.kube.client import Answer, KubeClient, Unknown

_SECONDS = 10.0
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class CertsError(InputError):
    """The API server did not do what was asked. Said in one line like bad input, for a pod's log shows nothing else."""


async def request(
    client: KubeClient, method: str, path: str, body: object = None, content_type: str = "application/json"
) -> Answer:
    """Return whatever the API server answers. Raises `CertsError` if it does not answer."""
    answer = await client.request(
        method,
        path,
        timeout_seconds=_SECONDS,
        body=None if body is None else json.dumps(body).encode(),
        content_type=content_type,
    )
    if isinstance(answer, Unknown):
        raise CertsError("API server", path, f"did not answer: {answer.why}")
    return answer


def check(answer: Answer, what: str) -> None:
    """Raise `CertsError` unless it was done."""
    if answer.status not in (HTTPStatus.OK, HTTPStatus.CREATED):
        raise CertsError("API server", str(answer.status), f"would not {what}: {answer.message}")


def decoded_object(answer: Answer, what: str) -> dict[str, Any]:
    """Return the object of an answer. Raises `CertsError` if it is none."""
    try:
        found: dict[str, Any] = json.loads(answer.body)
    except ValueError as error:
        raise CertsError("API server", what, f"its answer does not decode: {error}") from None
    return found
