"""etcd, kube-apiserver and kube-scheduler of one Kubernetes version, as processes on loopback.

It exists because what the extender claims about Kubernetes has to be shown on Kubernetes. It must not know the
extender. Invariants: everything listens on 127.0.0.1 on free ports; data, certificates and logs lie in one folder;
whatever happens, `stop` ends every process by its id. There is no kubelet and no controller: what they would do, the
tests do.

    with ControlPlane(find("1.37"), folder) as plane:
        plane.start_scheduler(scheduler_configuration("http://127.0.0.1:8888"))
        async with plane.session() as session:
            async with session.get("/api/v1/nodes") as response: ...

Users: `admin` may do everything; `scheduler` is system:kube-scheduler; `extender` is the service account
kube-system/gpu-extender, which may do what manifests/live/rbac.yaml says and nothing else; `certs` is
kube-system/gpu-extender-certs; it and `reader` may do nothing until a test grants it.
"""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import yaml

from tests.e2e.binaries import Binaries
from tests.e2e.processes import ROOT, Child, answers, free_ports

Json = dict[str, Any]

SCHEDULER_NAME: Final = "gpu-scheduler"
_STANZA: Final = ROOT / "manifests" / "scheduler" / "kube-scheduler-config.yaml"
_RBAC: Final = ROOT / "manifests" / "live" / "rbac.yaml"
_EVICTING: Final = ROOT / "manifests" / "evict" / "rbac.yaml"
#: They sign nothing but service account tokens that nobody uses.
_KEY: Final = ROOT / "tests" / "live" / "tls" / "server.key"
_CERTIFICATE: Final = _KEY.with_suffix(".crt")
_READY_SECONDS: Final = 120.0
_LINE_BYTES: Final = 2**24
_OK, _NOT_FOUND, _CONFLICT, _DONE = 200, 404, 409, (200, 201)
ADMIN_TOKEN: Final = "admin-token"
#: Token, user, groups.
_USERS: Final = {
    "admin": (ADMIN_TOKEN, "admin", "system:masters"),
    "scheduler": ("scheduler-token", "system:kube-scheduler", ""),
    "extender": (
        "extender-token",
        "system:serviceaccount:kube-system:gpu-extender",
        "system:serviceaccounts,system:serviceaccounts:kube-system",
    ),
    "certs": (
        "certs-token",
        "system:serviceaccount:kube-system:gpu-extender-certs",
        "system:serviceaccounts,system:serviceaccounts:kube-system",
    ),
    "reader": ("reader-token", "reader", ""),
}
#: ServiceAccount wants accounts that a controller makes, TaintNodesByCondition a controller that removes its taint.
_ADMISSION_OFF: Final = "ServiceAccount,TaintNodesByCondition"


class ControlPlane:
    """One etcd and one API server, and kube-schedulers beside them."""

    def __init__(
        self,
        binaries: Binaries,
        folder: Path,
        *,
        api_flags: Sequence[str] = (),
        feature_gates: Mapping[str, bool] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.binaries = binaries
        self.folder = folder
        self.scheduler: Child | None = None
        self._gates = ",".join(f"{name}={str(on).lower()}" for name, on in (feature_gates or {}).items())
        etcd, peer, api = free_ports(3)
        self.url = f"https://127.0.0.1:{api}"
        self._etcd_url = f"http://127.0.0.1:{etcd}"
        self.etcd = Child("etcd", self._etcd_command(f"http://127.0.0.1:{peer}"), folder / "etcd.log")
        command = [*self._api_command(api), *api_flags]
        self.api_server = Child("kube-apiserver", command, folder / "kube-apiserver.log")

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start etcd and the API server, wait until they are ready, and create what RBAC needs."""
        (self.folder / "tokens.csv").write_text(
            "".join(f'{token},{user},{name},"{groups}"\n' for name, (token, user, groups) in _USERS.items())
        )
        self.etcd.start()
        self.etcd.wait_until(lambda: answers(f"{self._etcd_url}/health"), "healthy", _READY_SECONDS)
        self.api_server.start()
        self.wait_ready()
        for document in yaml.safe_load_all(_RBAC.read_text()):
            self.apply(document)
        return self

    def permit_evictions(self) -> None:
        """Give the extender the permission that it has where it may evict pods, and nowhere else."""
        for document in yaml.safe_load_all(_EVICTING.read_text()):
            self.apply(document)

    def wait_ready(self) -> None:
        """Wait until the API server is ready."""
        self.api_server.wait_until(self.is_ready, "ready", _READY_SECONDS)

    def stop(self) -> None:
        """End everything."""
        for child in (self.scheduler, self.api_server, self.etcd):
            if child is not None:
                child.end()

    def __enter__(self) -> Self:
        """Start."""
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    # -- kube-scheduler -----------------------------------------------------------------------------------------------

    def start_scheduler(self, configuration: Json, log: Path | None = None, flags: Sequence[str] = ()) -> Child:
        """Start a kube-scheduler with this configuration, in place of the one before it."""
        self.stop_scheduler()
        path = self.folder / "kube-scheduler-config.yaml"
        connection = configuration.get("clientConnection", {}) | {"kubeconfig": str(self.kubeconfig("scheduler"))}
        path.write_text(yaml.safe_dump(configuration | {"clientConnection": connection}))
        gates = [f"--feature-gates={self._gates}"] if self._gates else []
        # Port 0: nobody asks it anything.
        command = [self.binaries.kube_scheduler, f"--config={path}", "--secure-port=0", "--v=2", *gates, *flags]
        self.scheduler = Child("kube-scheduler", command, log or self.folder / "kube-scheduler.log").start()
        return self.scheduler

    def stop_scheduler(self) -> None:
        """End kube-scheduler if one runs."""
        if self.scheduler is not None:
            self.scheduler.end()

    # -- clients ------------------------------------------------------------------------------------------------------

    @property
    def certificate(self) -> Path:
        """The certificate of the API server, which is its own authority."""
        return self.folder / "certificates" / "apiserver.crt"

    def session(self, user: str = "admin") -> aiohttp.ClientSession:
        """A client of the API server."""
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=self.certificate), limit=0)
        headers = {"Authorization": f"Bearer {_USERS[user][0]}"}
        return aiohttp.ClientSession(self.url, headers=headers, connector=connector, read_bufsize=_LINE_BYTES)

    def kubeconfig(self, user: str) -> Path:
        """A kubeconfig of one of the users."""
        path = self.folder / f"{user}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": _USERS[user][0]}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": user}}],
            "current-context": "e2e",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def is_ready(self) -> bool:
        """Whether the API server is ready."""
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def request(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """One request without an event loop; status and text. A body is sent as YAML."""
        data = None if body is None else yaml.safe_dump(body).encode()
        headers = {"Authorization": f"Bearer {_USERS['admin'][0]}", "Content-Type": "application/yaml"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - https
        context = ssl.create_default_context(cafile=self.certificate)
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as response:  # noqa: S310 - https
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def apply(self, manifest: Json) -> None:
        """Create an object, or replace what has its name. Raises RuntimeError."""
        path = _path(manifest)
        end = time.monotonic() + _READY_SECONDS
        status, text = self._put(path, manifest)
        while status == _NOT_FOUND and time.monotonic() < end:
            # kube-system is made by the API server itself, a moment after it is ready.
            time.sleep(0.1)
            status, text = self._put(path, manifest)
        if status not in _DONE:
            raise RuntimeError(f"{manifest['kind']} {manifest['metadata']['name']}: {status}: {text}")

    def remove(self, manifest: Json) -> None:
        """Delete an object if it is there; what controllers would do before its end is left out."""
        path = f"{_path(manifest)}/{manifest['metadata']['name']}"
        self.request("DELETE", path)
        status, text = self.request("GET", path)
        if status == _OK and (left := yaml.safe_load(text))["metadata"].pop("finalizers", None):
            self.request("PUT", path, left)

    def _put(self, path: str, manifest: Json) -> tuple[int, str]:
        status, text = self.request("POST", path, manifest)
        if status != _CONFLICT:
            return status, text
        own = f"{path}/{manifest['metadata']['name']}"
        version = yaml.safe_load(self.request("GET", own)[1])["metadata"]["resourceVersion"]
        return self.request("PUT", own, manifest | {"metadata": manifest["metadata"] | {"resourceVersion": version}})

    # -- commands -----------------------------------------------------------------------------------------------------

    def _etcd_command(self, peer_url: str) -> list[str | Path]:
        flags = {
            "name": "e2e",
            "data-dir": self.folder / "etcd",
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"e2e={peer_url}",
            # The data are gone with the test.
            "unsafe-no-fsync": "true",
            "log-level": "warn",
        }
        return [self.binaries.etcd, *(f"--{name}={value}" for name, value in flags.items())]

    def _api_command(self, port: int) -> list[str | Path]:
        flags = {
            "etcd-servers": self._etcd_url,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": port,
            # No Service leads to this API server.
            "endpoint-reconciler-type": "none",
            "cert-dir": self.folder / "certificates",
            "token-auth-file": self.folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": _KEY,
            "service-account-key-file": _CERTIFICATE,
            "service-cluster-ip-range": "10.0.0.0/24",
            "disable-admission-plugins": _ADMISSION_OFF,
            "event-ttl": "1h",
        }
        if self._gates:
            flags["feature-gates"] = self._gates
        return [self.binaries.kube_apiserver, *(f"--{name}={value}" for name, value in flags.items())]


def _path(manifest: Json) -> str:
    """The collection of an object's kind. Such plurals are all that is needed here."""
    if manifest["kind"] == "Endpoints":
        return f"/api/v1/namespaces/{manifest['metadata']['namespace']}/endpoints"
    group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    namespace, kind = manifest["metadata"].get("namespace"), manifest["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{group}{f'/namespaces/{namespace}' if namespace else ''}/{plural}"


def scheduler_configuration(extender_url: str | None, *, http_timeout_seconds: float = 10.0) -> Json:
    """The project's own kube-scheduler configuration with this extender; None: without any."""
    configuration: Json = yaml.safe_load(_STANZA.read_text())
    configuration["leaderElection"] = {"leaderElect": False}
    if extender_url is None:
        return configuration | {"extenders": []}
    ours = configuration["extenders"][0] | {
        "urlPrefix": extender_url,
        "httpTimeout": f"{http_timeout_seconds:g}s",
    }
    return configuration | {"extenders": [ours]}
