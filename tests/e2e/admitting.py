"""An extender whose webhooks a real API server calls over TLS.

It exists so that the tests of admission say only what is created and what becomes of it. It must not judge. Invariants:
the certificate is made by `certs`, the configurations by `webhooks`, as a user would; when it is left, no
configuration, no pod and no process stays.
"""

import asyncio
import base64
import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from tests.e2e.control_plane import ControlPlane
from tests.e2e.processes import ROOT, Child, free_ports
from tests.e2e.world import Kube, Refusal
from tests.extender.objects import asks, container, node, sidecar

Json = dict[str, Any]
SECRET: Final = "gpu-extender-webhook-tls"
#: Namespaces: one with the webhooks, and one that is left alone.
JUDGED: Final = "judged"
UNJUDGED: Final = "unjudged"
_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"


def extender(*arguments: str | Path) -> str:
    """Run a command; return its output. Raises CalledProcessError."""
    command = [sys.executable, "-m", "extender", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout


class Admitting:
    """A cluster with webhooks."""

    def __init__(
        self, plane: ControlPlane, folder: Path, reading: Sequence[str] = (), options: Sequence[str | Path] = ()
    ) -> None:
        """`reading`: options of both `serve` and `webhooks`; `options`: of `serve` alone."""
        self.plane = plane
        self._reading = reading
        self.folder = folder
        port, webhook_port = free_ports(2)
        self.url, self.webhook_url = f"http://127.0.0.1:{port}", f"https://127.0.0.1:{webhook_port}"
        self.tls = folder / "tls"
        self.tls.mkdir(exist_ok=True)
        flags = {
            "kubeconfig": plane.kubeconfig("extender"),
            "port": port,
            "webhook-port": webhook_port,
            "tls-cert-file": self.tls / "tls.crt",
            "tls-private-key-file": self.tls / "tls.key",
            "lock-mode": "none",
        }
        command = [sys.executable, "-m", "extender", "serve", *(f"--{name}={value}" for name, value in flags.items())]
        # No other process writes here, and no test waits for the Lease of an earlier one.
        command += ["--no-leader-elect", *reading, *map(str, options)]
        self.process = Child("gpu-extender", command, folder / "extender.log")
        self._sessions: list[aiohttp.ClientSession] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Start."""
        try:
            self._sessions = [self.plane.session("admin"), self.plane.session("extender")]
            self._sessions.append(aiohttp.ClientSession(self.url))
            self.admin, self.scheduler = Kube(self._sessions[0]), Kube(self._sessions[1])
            self.extender = Kube(self._sessions[2])
            for name, labels in ((JUDGED, {}), (UNJUDGED, {"gpu-extender.io/webhook": "ignore"})):
                meta = {"name": name, "labels": labels}
                self.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
            self.plane.apply(node("n1", 4, memory=10**6, allocatable="40"))
            printed = extender("webhooks", "--url", self.webhook_url, "-o", "json", *self._reading)
            for configuration in json.loads(printed)["items"]:
                self.plane.apply(configuration)
            await self.renew()
            self.process.start()
            await asyncio.to_thread(self.process.wait_until, self.is_admitting, "admitting")
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and leave nothing behind."""
        for kind_of in ("mutating", "validating"):
            for name in ("gpu-extender", "zz-injector"):
                self.plane.request("DELETE", f"{_CONFIGURATIONS}/{kind_of}webhookconfigurations/{name}")
        self.process.end()
        for namespace in (JUDGED, UNJUDGED):
            status, text = self.plane.request("GET", f"/api/v1/namespaces/{namespace}/pods")
            for pod in json.loads(text)["items"] if status == 200 else ():
                path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0"
                self.plane.request("DELETE", path)
            self.plane.request("DELETE", f"/api/v1/namespaces/{namespace}/resourcequotas/gpus")
        self.plane.request("DELETE", "/api/v1/nodes/n1")
        self.plane.request("DELETE", f"/api/v1/namespaces/kube-system/secrets/{SECRET}")
        for session in self._sessions:
            await session.close()

    async def renew(self, *flags: str) -> Json:
        """Make or renew the certificate, and bring the Secret to the extender as a kubelet does."""
        kubeconfig = self.plane.kubeconfig("admin")
        given = [f"--secret=kube-system/{SECRET}", f"--kubeconfig={kubeconfig}", "--host=127.0.0.1", *flags]
        told: Json = json.loads(await asyncio.to_thread(extender, "certs", *given, "--output=json"))
        secret = await self.admin.send("GET", f"/api/v1/namespaces/kube-system/secrets/{SECRET}")
        for name, text in secret["data"].items():
            new = self.tls / f".{name}"
            new.write_bytes(base64.b64decode(text))
            new.rename(self.tls / name)
        return told

    def is_admitting(self) -> bool:
        """Whether the webhook port says that it is ready, by a certificate that is trusted."""
        context = ssl.create_default_context(cafile=self.tls / "ca.crt")
        try:
            with urllib.request.urlopen(f"{self.webhook_url}/readyz", timeout=1, context=context) as response:  # noqa: S310 - https
                return bool(response.status == 200)
        except OSError:
            return False

    # -- pods ---------------------------------------------------------------------------------------------------------

    async def create(self, pod: Json, namespace: str = JUDGED, *, dry_run: bool = False) -> Json:
        """Create a pod. Raises Refusal."""
        query = "?dryRun=All" if dry_run else ""
        body = pod | {"metadata": pod["metadata"] | {"namespace": namespace}}
        return await self.admin.send("POST", f"/api/v1/namespaces/{namespace}/pods{query}", body)

    async def refusal(self, pod: Json, namespace: str = JUDGED, *, dry_run: bool = False) -> str:
        """Return why a pod is not created; "" if it would be."""
        try:
            await self.create(pod, namespace, dry_run=dry_run)
        except Refusal as why:
            return str(why)
        return ""

    async def delete(self, name: str, namespace: str = JUDGED) -> None:
        """Delete a pod at once."""
        await self.admin.send("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")

    async def place(self, pod: Json) -> None:
        """Filter and bind a created pod as kube-scheduler does."""
        meta = pod["metadata"]
        passed = await self.extender.send("POST", "/filter", {"Pod": pod, "Nodes": None, "NodeNames": ["n1"]})
        assert passed["NodeNames"] == ["n1"], passed
        names = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": "n1"}
        assert await self.extender.send("POST", "/bind", names) == {"Error": ""}

    async def quota(self, hard: Json, namespace: str = JUDGED) -> None:
        """Set a namespace's quota, and be the controller that fills in its status."""
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        meta = {"name": "gpus", "namespace": namespace}
        made: Json = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}}
        self.plane.apply(made)
        made["status"] = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        await self.admin.send("PATCH", f"{path}/gpus/status", {"status": made["status"]})

    async def until_quota_is(self, resource: str, *, hard: int | None = None, used: int | None = None) -> None:
        """Wait until the extender has seen it."""
        async with asyncio.timeout(20):
            while True:
                rows = await self.extender.send("GET", "/api/v1/quotas")
                for row in rows:
                    if (row["namespace"], row["resource"]) != (JUDGED, resource):  # type: ignore[index]
                        continue
                    if row["hard"] == (hard or row["hard"]) and row["used"] == (row["used"] if used is None else used):  # type: ignore[index]
                        return
                await asyncio.sleep(0.05)


def pod(name: str, *containers: Json, inits: list[Json] | None = None, **more: Any) -> Json:  # noqa: ANN401
    """A pod as a user writes it."""
    meta: Json = {"name": name} | {key: more.pop(key) for key in ("annotations", "labels") if key in more}
    spec: Json = {"containers": list(containers), **more}
    if inits:
        spec["initContainers"] = inits
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def told(text: str) -> Json:
    """Return a pod from the words of the worked examples: "sidecar 2, init 20, app 10", in MiB."""
    kinds = {"init": container, "sidecar": sidecar, "app": container}
    made: list[tuple[str, Json]] = []
    for number, part in enumerate(text.split(", ")):
        kind, mebibytes = part.split()
        made.append((kind, kinds[kind](f"{kind}{number}", asks(1, int(mebibytes)))))
    inits = [each for kind, each in made if kind != "app"]
    return pod("p", *(each for kind, each in made if kind == "app"), inits=inits)
