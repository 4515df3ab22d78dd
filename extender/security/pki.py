"""A certificate authority that is used once: it signs one serving certificate, and its key is thrown away.

Why it exists: the API server must trust the webhook's certificate, and a cluster may have nothing that issues
certificates. It must not do I/O or read a clock. Invariants: no key of an authority is kept, so none can be stolen; a
renewal makes a new authority, and both are trusted until the old one has expired.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

#: Certificates are valid from a bit before now, because clocks differ.
_BACKDATED = timedelta(minutes=5)


class Issued(NamedTuple):
    """The made certificates and key, as PEM."""

    ca: bytes
    certificate: bytes
    key: bytes


def issue(hosts: Sequence[str], now: datetime, lifetime: timedelta) -> Issued:
    """Return an authority and a serving certificate for these DNS names and IP addresses."""
    start, end = now - _BACKDATED, now + lifetime
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name(f"gpu-extender webhook CA {now:%Y-%m-%dT%H:%M:%SZ}")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name("gpu-extender webhook"), ca_name, key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Issued(_pem(ca), _pem(certificate), private)


def why_renew(
    certificate: bytes, key: bytes, bundle: bytes, hosts: Iterable[str], now: datetime, renew_before: timedelta
) -> str:
    """Return why a pair must be replaced; "" if it need not be."""
    try:
        leaf = x509.load_pem_x509_certificates(certificate)[0]
        private = serialization.load_pem_private_key(key, password=None)
        authorities = x509.load_pem_x509_certificates(bundle)
    except (ValueError, TypeError):
        return "it cannot be read"
    if leaf.public_key() != private.public_key():
        return "the key is not the certificate's"
    if not any(_is_signed_by(leaf, each) for each in authorities):
        return "it is signed by nobody in ca.crt"
    if leaf.not_valid_after_utc - now < renew_before:
        return f"it expires at {leaf.not_valid_after_utc.isoformat()}"
    missing = sorted(set(hosts) - _hosts_of(leaf))
    return f"it does not name {', '.join(missing)}" if missing else ""


def bundle_of(new: bytes, old: bytes, now: datetime) -> bytes:
    """Return the authorities to trust: the new ones, and the old ones that have not expired yet, newest first.

    Raises ValueError if the new ones cannot be read; unreadable old ones are dropped.
    """
    try:
        known = x509.load_pem_x509_certificates(old)
    except ValueError:
        known = []
    kept = sorted((each for each in known if each.not_valid_after_utc > now), key=_expiry, reverse=True)
    return b"".join(dict.fromkeys(map(_pem, [*x509.load_pem_x509_certificates(new), *kept])))


def not_after(certificate: bytes) -> datetime:
    """Return when a certificate expires. Raises ValueError."""
    return x509.load_pem_x509_certificates(certificate)[0].not_valid_after_utc


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start.astimezone(UTC))
        .not_valid_after(end.astimezone(UTC))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _hosts_of(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    return addresses | set(names.get_values_for_type(x509.DNSName))


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - one of several libraries' errors; whatever it was, it is not signed
        return False
    return True


def _expiry(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_after_utc


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
