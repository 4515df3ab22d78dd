"""Certificates: making them, and replacing them while they are served.

It must not know what the server answers.
"""

from extender.security.pki import bundle_of, issue, not_after, why_renew
from extender.security.tls import CertificateCollector, ServingCertificate, TlsError

__all__ = ["CertificateCollector", "ServingCertificate", "TlsError", "bundle_of", "issue", "not_after", "why_renew"]
