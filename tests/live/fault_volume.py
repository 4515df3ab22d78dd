"""A Secret's files as a kubelet mounts them into a replica's pod, and the certificate that is served from them.

It exists because a certificate changes in steps, and a fault can come between any two. It must not make a certificate.
Invariant: as at a kubelet, the files of one version of the Secret appear together, some time after it was written.
"""

import base64
from pathlib import Path

from extender.security.tls import ServingCertificate
from tests.apiserver.resources import SECRETS
from tests.apiserver.server import ApiServer

NAMESPACE, NAME = "kube-system", "tls"
CERTIFICATE, KEY, AUTHORITIES = "tls.crt", "tls.key", "ca.crt"


def secret_of(api: ApiServer) -> dict[str, bytes]:
    """Return the files of the Secret as it is now; none if there is no Secret."""
    row = api.store.get(SECRETS, f"{NAMESPACE}/{NAME}")
    data = {} if row is None else row.decode()["data"]
    return {name: base64.b64decode(text) for name, text in data.items()}


class Volume:
    """The files in one pod."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        """`folder`: an empty one that exists."""
        self._api, self._folder = api, folder
        self._versions = 0
        self._shown: dict[str, bytes] = {}
        for name in (CERTIFICATE, KEY):
            (folder / name).symlink_to(Path("..data") / name)
        self.sync()

    def sync(self) -> None:
        """Show the Secret as it is now. Kubernetes moves the link `..data` to another directory."""
        files = secret_of(self._api)
        if not files or files == self._shown:
            return
        self._versions += 1
        new = self._folder / f"..{self._versions}"
        new.mkdir()
        for name, content in files.items():
            (new / name).write_bytes(content)
        link = self._folder / "..next"
        link.symlink_to(new.name)
        link.rename(self._folder / "..data")
        self._shown = files

    def certificate(self) -> ServingCertificate:
        """Return what a replica serves that starts now."""
        return ServingCertificate(str(self._folder / CERTIFICATE), str(self._folder / KEY))
