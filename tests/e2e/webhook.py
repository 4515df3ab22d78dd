"""A validating webhook on Bindings that a scenario can turn on.

It exists because the API server may refuse a Binding for reasons of its own, or take its time. It must not know the
extender. Invariants: while no scenario asks for it, nothing is registered; it is registered, and gone, for the API
server too, which reads its webhooks from a cache, when the call that asks for it returns.
"""

import asyncio
import base64
import ssl
from collections import Counter
from typing import Any, Final

from aiohttp import web

from tests.e2e.control_plane import ControlPlane
from tests.e2e.processes import ROOT, free_ports

Json = dict[str, Any]
_TLS: Final = ROOT / "tests" / "live" / "tls"
_NAME: Final = "bindings.e2e.gpu-extender.io"
_NOBODY: Final = "nobody"
_KNOWN_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


class BindingWebhook:
    """Denies, holds or allows."""

    def __init__(self, plane: ControlPlane) -> None:
        self.asked: Counter[str] = Counter()
        """How often it was asked, by the pod's name."""
        self._plane = plane
        self._runner: web.AppRunner | None = None
        self._mode = "allowed"
        self._let_go = asyncio.Event()

    async def set(self, mode: str) -> None:
        """Set what happens from now on: denied, held or allowed. What was held before is allowed."""
        if self._runner is None:
            await self._register(await self._listen())
        self._let_go.set()
        self._let_go = asyncio.Event()
        self._mode = mode

    async def stop(self) -> None:
        """Remove it."""
        if self._runner is not None:
            await self.set("allowed")
            await asyncio.to_thread(self._plane.remove, self._configuration(0))
            await self._until_asked(False)
            await self._runner.cleanup()

    async def _listen(self) -> int:
        app = web.Application()
        app.router.add_post("/", self._review)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(_TLS / "server.crt", _TLS / "server.key")
        port = free_ports(1)[0]
        await web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=context).start()
        return port

    async def _register(self, port: int) -> None:
        await asyncio.to_thread(self._plane.apply, self._configuration(port))
        await self._until_asked(True)

    async def _until_asked(self, wanted: bool) -> None:
        """Send Bindings of pods that do not exist until the API server asks about them, or no longer does."""
        target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": _NOBODY}, "target": target}
        path = f"/api/v1/namespaces/default/pods/{_NOBODY}/binding?dryRun=All"
        async with asyncio.timeout(_KNOWN_SECONDS):
            while True:
                before = self.asked[_NOBODY]
                await asyncio.to_thread(self._plane.request, "POST", path, body)
                if (self.asked[_NOBODY] > before) == wanted:
                    return
                await asyncio.sleep(_POLL_SECONDS)

    def _configuration(self, port: int) -> Json:
        authority = base64.b64encode((_TLS / "ca.crt").read_bytes()).decode()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
        hook = {
            "name": _NAME,
            "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": authority},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 10,
        }
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": _NAME},
            "webhooks": [hook],
        }

    async def _review(self, request: web.Request) -> web.Response:
        review = await request.json()
        allowed = self._mode != "denied"
        self.asked[review["request"]["name"]] += 1
        if self._mode == "held":
            await self._let_go.wait()
        response: Json = {"uid": review["request"]["uid"], "allowed": allowed}
        if not response["allowed"]:
            response["status"] = {"code": 403, "message": "no pods today"}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
