"""Certificates: making them, and serving with them while they are replaced.

It must not know what is served.
"""

from extender.security.pki import bundle_of, issue, not_after, why_renew
from extender.security.tls import CertificateCollector, ServingCertificate, TlsError

__all__ = ["CertificateCollector", "ServingCertificate", "TlsError", "bundle_of", "issue", "not_after", "why_renew"]
