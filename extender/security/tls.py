"""The certificate of a port, replaced while the port serves.

Why it exists: certificates are rotated while pods are created, and while a webhook fails no GPU pod can be created
(HAMi#1572, a user's report). It must not know what the server answers. Invariants: open connections stay open; a new
pair is used as a whole or not at all; if it cannot be used, the old one stays, and log and metric show it.
"""

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extender.logs import logger

#: How often the files are checked. Kubernetes takes up to a minute to update them from a changed Secret.
POLL_SECONDS = 1.0


class TlsError(Exception):
    """A pair of files cannot be used. The text names the file and why."""


class _Stamp(NamedTuple):
    """The properties of a file that change when it is replaced or written."""

    inode: int
    size: int
    modified_ns: int


_Stamps = tuple[_Stamp | None, ...]


class Pair(NamedTuple):
    """A certificate with its key, ready to be served."""

    context: ssl.SSLContext
    not_after: datetime


class ServingCertificate:
    """A pair of files, and the certificate last read from them."""

    def __init__(self, cert_file: str, key_file: str, client_ca_file: str | None = None) -> None:
        """Read the files. `client_ca_file`: the authority of client certificates. Raises `TlsError`."""
        self.cert_file, self.key_file, self.client_ca_file = cert_file, key_file, client_ca_file
        # Noted before reading: files that change meanwhile are read again.
        self._served = self._look()
        self._pair = load_pair(cert_file, key_file, client_ca_file)
        self._suspected: _Stamps | None = None
        self._refused: _Stamps | None = None
        self._told_expired: datetime | None = None
        self.reloads = 0
        self.failures = 0
        self.context = self._pair.context
        """Return the context for the listening socket. Each handshake uses the newest pair."""
        self.context.sni_callback = self._choose
        self._tell_expired()

    @property
    def is_stale(self) -> bool:
        """Whether the served certificate has expired, or the files have a pair that cannot be used."""
        return self._refused is not None or self.is_expired

    @property
    def is_expired(self) -> bool:
        """Whether the served certificate has expired, so that clients refuse it."""
        return self.not_after <= datetime.now(UTC)

    @property
    def not_after(self) -> datetime:
        """When the served certificate expires."""
        return self._pair.not_after

    def reload_if_changed(self) -> bool:
        """Read the files again if they have changed; returns whether another pair is served now.

        An unusable pair is read twice before it is reported, because the files may be half written. What was read while
        they changed is neither used nor reported: it may be of two pairs.
        """
        stamps = self._look()
        if stamps in (self._served, self._refused):
            return False
        try:
            pair: Pair | TlsError = _current(
                load_pair(self.cert_file, self.key_file, self.client_ca_file), self.cert_file
            )
        except TlsError as error:
            pair = error
        if stamps != self._look():
            return False
        if isinstance(pair, TlsError):
            if stamps == self._suspected:
                self._refuse(stamps, str(pair))
            self._suspected = stamps
            return False
        self._pair, self._served = pair, stamps
        self._suspected = self._refused = None
        self.reloads += 1
        logger().info("certificate replaced", file=self.cert_file, not_after=pair.not_after.isoformat())
        return True

    def _refuse(self, stamps: _Stamps, why: str) -> None:
        self._refused = stamps
        self.failures += 1
        logger().error("new certificate cannot be used, the old one stays", why=why)

    async def watch(self, poll_seconds: float = POLL_SECONDS) -> None:
        """Check the files at intervals until cancelled."""
        while True:
            await asyncio.sleep(poll_seconds)
            await asyncio.to_thread(self.reload_if_changed)
            self._tell_expired()

    def _tell_expired(self) -> None:
        """Log once per certificate that it has expired. It is still served: a new pair may come at any moment."""
        if self.is_expired and self._told_expired != self.not_after:
            self._told_expired = self.not_after
            logger().error("certificate has expired", file=self.cert_file, not_after=self.not_after.isoformat())

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called in every handshake, with or without a server name."""
        connection.context = self._pair.context

    def _look(self) -> _Stamps:
        files = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(_stamp(each) for each in files if each is not None)


class CertificateCollector(Collector):
    """Metrics of the certificate."""

    def __init__(self, certificate: ServingCertificate) -> None:
        self._certificate = certificate

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        certificate = self._certificate
        reloads = CounterMetricFamily(
            "gpu_extender_tls_reloads", "Changes of the certificate files, by result.", labels=["result"]
        )
        reloads.add_metric(["replaced"], certificate.reloads)
        reloads.add_metric(["failed"], certificate.failures)
        yield reloads
        text = "1 while what is served has expired, or the files hold a pair that cannot be used."
        yield GaugeMetricFamily("gpu_extender_tls_stale", text, value=int(certificate.is_stale))
        text = "When the served certificate expires, in seconds since 1970."
        expiry = certificate.not_after.timestamp()
        yield GaugeMetricFamily("gpu_extender_tls_not_after_timestamp_seconds", text, value=expiry)


def load_pair(cert_file: str, key_file: str, client_ca_file: str | None = None) -> Pair:
    """Read a certificate chain and its key, PEM. Raises `TlsError`.

    With `client_ca_file` a client may show a certificate, and one of another authority fails the handshake. Whether a
    client must show one is decided per path, because kubelets show none when they probe.
    """
    try:
        chain = x509.load_pem_x509_certificates(Path(cert_file).read_bytes())
    except OSError as error:
        raise TlsError(f"{cert_file}: {error.strerror}") from None
    except ValueError:
        raise TlsError(f"{cert_file}: holds no PEM certificate") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # The API server would use HTTP/2 if it were offered, but aiohttp cannot.
    context.set_alpn_protocols(["http/1.1"])
    # Clients do not resume sessions, and each ticket costs another write in the handshake.
    context.num_tickets = 0
    try:
        # Without this callback OpenSSL would ask on the terminal for the password of an encrypted key.
        context.load_cert_chain(cert_file, key_file, password=lambda: "")
    except OSError as error:
        raise TlsError(f"{key_file}: {_why(error)}") from None
    if client_ca_file is not None:
        _trust_clients_of(context, client_ca_file)
    return Pair(context, chain[0].not_valid_after_utc)


def _trust_clients_of(context: ssl.SSLContext, client_ca_file: str) -> None:
    try:
        context.load_verify_locations(client_ca_file)
    except ssl.SSLError:
        raise TlsError(f"{client_ca_file}: holds no PEM certificate") from None
    except OSError as error:
        raise TlsError(f"{client_ca_file}: {error.strerror}") from None
    context.verify_mode = ssl.CERT_OPTIONAL


def _current(pair: Pair, cert_file: str) -> Pair:
    if pair.not_after <= datetime.now(UTC):
        raise TlsError(f"{cert_file}: expired at {pair.not_after.isoformat()}")
    return pair


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "is not the key of the certificate"
        return f"holds no PEM key that can be used ({error.reason or error.__class__.__name__})"
    return error.strerror or str(error)


def _stamp(path: str) -> _Stamp | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return _Stamp(status.st_ino, status.st_size, status.st_mtime_ns)
