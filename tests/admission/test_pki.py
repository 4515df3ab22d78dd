"""The single-use authority: what it signs, when it must be renewed, and which authorities are trusted meanwhile."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from extender.security.pki import bundle_of, issue, not_after, why_renew

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
HOSTS = ("gpu-extender-webhook.kube-system.svc", "127.0.0.1")
YEAR, THIRD = timedelta(days=365), timedelta(days=120)


def _why(at: datetime = NOW, *, hosts: tuple[str, ...] = HOSTS) -> str:
    made = issue(HOSTS, NOW, YEAR)
    return why_renew(made.certificate, made.key, made.ca, hosts, at, THIRD)


def test_a_fresh_pair_is_kept_and_an_old_one_renewed() -> None:
    assert _why() == ""
    assert _why(NOW + timedelta(days=244)) == ""
    assert _why(NOW + timedelta(days=246)) == "it expires at 2027-11-29T12:00:00+00:00"


def test_another_host_needs_another_certificate() -> None:
    assert _why(hosts=("127.0.0.1",)) == ""
    assert _why(hosts=(*HOSTS, "b.svc", "a.svc")) == "it does not name a.svc, b.svc"


@pytest.mark.parametrize("broken", range(3))
def test_what_cannot_be_read_is_renewed(broken: int) -> None:
    made = issue(HOSTS, NOW, YEAR)
    certificate, key, ca = (
        b"junk" if place == broken else part for place, part in enumerate((made.certificate, made.key, made.ca))
    )
    assert why_renew(certificate, key, ca, HOSTS, NOW, THIRD) == "it cannot be read"


def test_what_does_not_belong_together_is_renewed() -> None:
    one, other = issue(HOSTS, NOW, YEAR), issue(HOSTS, NOW, YEAR)
    assert why_renew(one.certificate, other.key, one.ca, HOSTS, NOW, THIRD) == "the key is not the certificate's"
    assert why_renew(one.certificate, one.key, other.ca, HOSTS, NOW, THIRD) == "it is signed by nobody in ca.crt"
    assert why_renew(one.certificate, one.key, other.ca + one.ca, HOSTS, NOW, THIRD) == ""


def test_old_authorities_are_trusted_until_they_expire() -> None:
    old, new = issue(HOSTS, NOW, YEAR).ca, issue(HOSTS, NOW + timedelta(days=300), YEAR).ca
    assert bundle_of(new, old, NOW + timedelta(days=300)) == new + old
    assert bundle_of(new, old, NOW + timedelta(days=366)) == new
    assert bundle_of(new, b"", NOW) == new
    assert bundle_of(new, b"junk", NOW) == new
    assert bundle_of(new, new + old, NOW) == new + old


def test_the_authority_signs_nothing_else_and_its_key_is_nowhere() -> None:
    made = issue(HOSTS, NOW, YEAR)
    ca = x509.load_pem_x509_certificate(made.ca)
    leaf = x509.load_pem_x509_certificate(made.certificate)
    key = serialization.load_pem_private_key(made.key, password=None)
    assert leaf.public_key() == key.public_key() != ca.public_key()
    limits = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (limits.critical, limits.value.ca, limits.value.path_length) == (True, True, 0)
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not_after(made.certificate) == ca.not_valid_after_utc == NOW + YEAR


def test_openssl_trusts_the_chain(tmp_path: Path) -> None:
    made = issue(("localhost",), datetime.now(UTC), timedelta(hours=1))
    for name, content in zip(("ca", "crt", "key"), made, strict=True):
        (tmp_path / name).write_bytes(content)
    client = ssl.create_default_context(cafile=str(tmp_path / "ca"))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(back, there, server_hostname="localhost")
    serving = server.wrap_bio(there, back, server_side=True)
    for side in (asking, serving, asking, serving):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert asking.version() == "TLSv1.3"
