"""Asking a running extender, by its address or through the API server's service proxy.

Why it exists: with the service proxy users need no port-forward and no further credentials. It must not know the
questions. Invariant: every failure is an `InputError` with the server's own text.
"""

import asyncio
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import orjson
import yaml

from extender.convert import InputError
from extender.kube.paths import service_proxy_path

_SECONDS = 60.0
Json = Any


class Service(NamedTuple):
    """The extender's Service in the cluster."""

    namespace: str = "kube-system"
    name: str = "gpu-extender"
    port: str = "8888"
    scheme: str = "http"


class Extender:
    """One way to a running extender."""

    def __init__(self, send: Callable[[str, str, bytes | None], tuple[int | None, bytes]], where: str) -> None:
        """`send`: method, path and body to status and body; no status means that there was no answer."""
        self._send = send
        self._where = where

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """Return the answer of a path. Raises `InputError`."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, body: bytes) -> Json:
        """Return the answer to a posted body. Raises `InputError`."""
        return self._ask("POST", path, body)

    def _ask(self, method: str, path: str, body: bytes | None) -> Json:
        status, answer = self._send(method, path, body)
        said: Json = None
        with suppress(orjson.JSONDecodeError):
            said = orjson.loads(answer)
        if status is not None and status // 100 == 2 and said is not None:  # noqa: PLR2004 - 2xx
            return said
        why = said.get("error") or said.get("message") if isinstance(said, dict) else None
        text = why or answer.decode(errors="replace").strip()[:200] or "no answer"
        raise InputError(self._where, f"{method} {path}", text if status is None else f"{status} {text}")


def by_address(server: str) -> Extender:
    """Return the extender at a URL, such as http://127.0.0.1:8888."""

    def send(method: str, path: str, body: bytes | None) -> tuple[int | None, bytes]:
        # The scheme has been checked to be http or https.
        headers = {} if body is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(server.rstrip("/") + path, body, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, ValueError) as error:
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            return None, (getattr(why, "strerror", None) or str(why)).encode()

    return Extender(send, "--server")


def by_service(kubeconfig: str, context: str | None, service: Service) -> Extender:
    """Return the extender behind a Service, through the API server's proxy with the caller's kubeconfig."""
    prefix = service_proxy_path(service.namespace, service.scheme, service.name, str(service.port))

    async def ask(method: str, path: str, body: bytes | None) -> tuple[int | None, bytes]:
        # The Kubernetes client takes a third of a second to import; --server does not need it.
        from extender.kube.client import Answer, ConnectError, KubeClient  # noqa: PLC0415

        try:
            client = await KubeClient.connect(kubeconfig, context)
        except ConnectError as error:
            named = kubeconfig if context is None else f"{kubeconfig}, context {context}"
            raise InputError("--kubeconfig", named, str(error)) from None
        try:
            path, _, query = path.partition("?")
            answer = await client.request(
                method, prefix + path, query=dict(parse_qsl(query)), body=body, timeout_seconds=_SECONDS
            )
        finally:
            await client.close()
        return (answer.status, answer.body) if isinstance(answer, Answer) else (None, str(answer).encode())

    return Extender(lambda method, path, body: asyncio.run(ask(method, path, body)), "--kubeconfig")


def default_kubeconfig() -> str:
    """Return the kubeconfig files that kubectl would read, as in $KUBECONFIG."""
    named = [each for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    return os.pathsep.join(named) or str(Path.home() / ".kube" / "config")


def namespace_of(kubeconfig: str, context: str | None) -> str:
    """Return the namespace of a context, or with None of the current one; "default" where it has none."""
    files = [read for path in kubeconfig.split(os.pathsep) if isinstance(read := _read(path), dict)]
    # Of several files the first that says something counts, as for kubectl.
    wanted = context or next((read["current-context"] for read in files if read.get("current-context")), None)
    for read in files:
        contexts = read.get("contexts")
        for each in contexts if isinstance(contexts, list) else ():
            if isinstance(each, dict) and each.get("name") == wanted:
                known = each.get("context")
                found = known.get("namespace") if isinstance(known, dict) else None
                return found if isinstance(found, str) and found else "default"
    return "default"


def _read(path: str) -> Json:
    try:
        return yaml.safe_load(Path(path).expanduser().read_text())
    except (OSError, UnicodeError, yaml.YAMLError):
        return None
