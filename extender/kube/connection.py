"""The address, the TLS and the credentials of the API server. Only this module uses kubernetes_asyncio.

Why it exists: kubeconfig files, exec plugins, OIDC and service accounts are worth a library. The library's models,
watch and leader election are not used: they cost milliseconds per pod, do not survive a 410, and leave a leader
running. It must not send requests. Invariants: an error in the configuration is a `ConnectError` before anything runs;
after a later error (such as a token file that is empty for a moment) the old credentials stay in use.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.client.rest import RESTClientObject
from kubernetes_asyncio.config.config_exception import ConfigException
from kubernetes_asyncio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from kubernetes_asyncio.config.kube_config import KubeConfigLoader, load_kube_config

from extender.logs import logger

#: The errors that the library raises for configurations that it cannot use, asserts and key errors included.
_LOAD_ERRORS = (
    ConfigException,
    yaml.YAMLError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
_BEARER = "BearerToken"
_LOAD_SECONDS = 60.0
_URGENT_CONNECTIONS = 4
#: As in the library: how many bytes a watch may receive before reading pauses.
_READ_BUFFER_BYTES = 2**21

# The library logs what it raises, and Python prints messages that have no handler.
logging.getLogger("kubernetes_asyncio").addHandler(logging.NullHandler())


class ConnectError(Exception):
    """The configuration of the API server cannot be used."""


class _Credentials(NamedTuple):
    """The credentials of requests."""

    authorization: str | None
    certificate: bytes


class Connection:
    """One API server."""

    def __init__(
        self, configuration: Configuration, loader: KubeConfigLoader | InClusterConfigLoader | None = None
    ) -> None:
        self._configuration = configuration
        self._loader = loader
        self._environment_proxy = _environment_proxy(str(configuration.host))
        self._sessions = _Sessions(configuration)
        self._retired: _Sessions | None = None
        self._certificate = _certificate(configuration)
        self._renewal: asyncio.Task[bool] | None = None

    @classmethod
    async def open(cls, kubeconfig: str | None, context: str | None = None) -> Self:
        """Read a kubeconfig file, or with None the pod's service account. Raises `ConnectError`.

        `context`: of the file; None for its current one.
        """
        configuration = Configuration()
        configuration.host = ""
        try:
            async with asyncio.timeout(_LOAD_SECONDS):
                loader = await _load(kubeconfig, context, configuration)
            _check_address(str(configuration.host))
            return cls(configuration, loader)
        except TimeoutError:
            raise ConnectError(f"the credentials did not come within {_LOAD_SECONDS:.0f} s") from None
        except _LOAD_ERRORS as error:
            raise ConnectError(_why(error)) from None

    async def close(self) -> None:
        """Close every connection."""
        if self._renewal is not None:
            self._renewal.cancel()
        for sessions in (self._sessions, self._retired):
            if sessions is not None:
                await sessions.close()

    def url(self, path: str, query: Mapping[str, str] | None) -> str:
        """Return the address of a path."""
        host = str(self._configuration.host).rstrip("/")
        return f"{host}{path}?{urlencode(query)}" if query else f"{host}{path}"

    def session(self, *, urgent: bool = False) -> aiohttp.ClientSession:
        """Return the session of ordinary requests, or the separate one for urgent requests."""
        return self._sessions.urgent if urgent else self._sessions.ordinary

    def options(self) -> dict[str, Any]:
        """Return the arguments that every request passes to aiohttp."""
        configuration = self._configuration
        options: dict[str, Any] = {"allow_redirects": False}
        if configuration.proxy:
            options |= {"proxy": configuration.proxy, "proxy_headers": configuration.proxy_headers}
        elif self._environment_proxy is not None:
            options["proxy"] = self._environment_proxy
        if configuration.tls_server_name:
            options["server_hostname"] = configuration.tls_server_name
        return options

    async def authorization(self) -> str | None:
        """Return the Authorization header. A service account's token is read again every minute."""
        value: object
        try:
            value = await self._configuration.get_api_key_with_prefix(_BEARER)
        except (ConfigException, OSError) as error:
            logger().warning("token cannot be read again", why=str(error))
            value = self._configuration.api_key.get(_BEARER)
        # A token file may end in a line break; a header must not.
        return value.strip() or None if isinstance(value, str) else None

    async def renew(self, refused: str | None) -> bool:
        """Get new credentials after a 401; returns whether they differ from the refused ones.

        Requests that were refused at the same time share one renewal, which goes on if they give up.
        """
        if self._renewal is None or self._renewal.done():
            if await self.authorization() != refused:
                return True
            self._renewal = asyncio.get_running_loop().create_task(self._renew(refused))
        return await asyncio.shield(self._renewal)

    async def _renew(self, refused: str | None) -> bool:
        before = _Credentials(refused, self._certificate)
        if isinstance(self._loader, KubeConfigLoader) and hasattr(self._loader, "exec_plugin_expiry"):
            # The plugin said that its token is still valid, but the API server refused it.
            del self._loader.exec_plugin_expiry
        try:
            async with asyncio.timeout(_LOAD_SECONDS):
                await _load_again(self._loader, self._configuration)
                after = _Credentials(await self.authorization(), _certificate(self._configuration))
                if after.certificate != before.certificate:
                    await self._reconnect(after.certificate)
        except (TimeoutError, *_LOAD_ERRORS) as error:
            logger().error("credentials cannot be renewed", why=_why(error))
            return False
        return after != before

    async def _reconnect(self, certificate: bytes) -> None:
        """Use a new client certificate; requests in flight end on the old connections."""
        retired, self._retired = self._retired, self._sessions
        self._sessions, self._certificate = _Sessions(self._configuration), certificate
        if retired is not None:
            await retired.close()


class _Sessions:
    """The connections that share one TLS context. The library makes them: it knows the TLS settings."""

    def __init__(self, configuration: Configuration) -> None:
        self._clients = (
            RESTClientObject(configuration),
            # So that a burst of slow writes cannot prevent the renewal of a lease.
            RESTClientObject(configuration, maxsize=_URGENT_CONNECTIONS),
        )
        self.ordinary, self.urgent = map(_session_of, self._clients)

    async def close(self) -> None:
        for session in (self.ordinary, self.urgent):
            await session.close()
        for client in self._clients:
            await client.close()


def _session_of(client: RESTClientObject) -> aiohttp.ClientSession:
    """Return a session over a client's connections.

    The library's own session reads the environment and ~/.netrc for every request, twice and each time in another
    thread; and if ~/.netrc has a default entry, it refuses every request that has a token.
    """
    connector = client.pool_manager.connector
    # No cookies: requests may go to different API servers.
    cookies, buffer = aiohttp.DummyCookieJar(), _READ_BUFFER_BYTES
    return aiohttp.ClientSession(connector=connector, connector_owner=False, cookie_jar=cookies, read_bufsize=buffer)


def _environment_proxy(host: str) -> str | None:
    """Return the proxy that the environment (HTTPS_PROXY, NO_PROXY) names for an address."""
    parts = urlsplit(host)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)


async def _load(
    kubeconfig: str | None, context: str | None, configuration: Configuration
) -> KubeConfigLoader | InClusterConfigLoader:
    if kubeconfig is None:
        service_account = InClusterConfigLoader(SERVICE_TOKEN_FILENAME, SERVICE_CERT_FILENAME)
        service_account.load_and_set(configuration)
        return service_account
    if not _exists(kubeconfig):
        raise ConfigException("no such file")
    return await load_kube_config(kubeconfig, context, configuration)


def _exists(kubeconfig: str) -> bool:
    """Whether one of the files exists; the library takes several, as kubectl does."""
    return any(Path(path).expanduser().exists() for path in kubeconfig.split(os.pathsep) if path)


async def _load_again(loader: KubeConfigLoader | InClusterConfigLoader | None, configuration: Configuration) -> None:
    if isinstance(loader, KubeConfigLoader):
        await loader.load_and_set(configuration)
    elif loader is not None:
        loader.load_and_set(configuration)


def _why(error: BaseException) -> str:
    if isinstance(error, ConfigException | OSError | yaml.YAMLError | ValueError) and str(error):
        return str(error)
    # The library fails in other ways where something is missing or of another type.
    return f"is not a configuration with a current context, its cluster and its user ({type(error).__name__})"


def _check_address(host: str) -> None:
    """Raise `ConfigException` unless the cluster has a usable address."""
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigException(f"clusters[].cluster.server: {host or '(empty)'}: must be an http or https URL")


def _certificate(configuration: Configuration) -> bytes:
    """Return the client certificate and its key as they are on disk now; such files are replaced in place."""
    paths = (configuration.cert_file, configuration.key_file)
    return b"\n".join(Path(path).read_bytes() for path in paths if path)
