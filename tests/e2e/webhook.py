"""A validating webhook on Bindings that a scenario can turn on.

It exists because the API server may refuse a Binding for reasons that nobody but it knows, or take its time. It must
not know the extender. Invariant: while no scenario asks for it, nothing is registered.
"""

import asyncio
import base64
import ssl
from typing import Any, Final

from aiohttp import web

from tests.e2e.control_plane import ControlPlane
from tests.e2e.processes import ROOT, free_ports

Json = dict[str, Any]
_TLS: Final = ROOT / "tests" / "live" / "tls"
_NAME: Final = "bindings.e2e.gpu-extender.io"


class BindingWebhook:
    """Denies, holds or allows."""

    def __init__(self, plane: ControlPlane) -> None:
        self.asked = 0
        self._plane = plane
        self._runner: web.AppRunner | None = None
        self._mode = "allowed"

    async def set(self, mode: str) -> None:
        """What happens from now on: denied, `held SECONDS` or allowed."""
        self._mode = mode
        if self._runner is None:
            await self._register(await self._listen())

    async def stop(self) -> None:
        """Remove it."""
        if self._runner is not None:
            await asyncio.to_thread(self._plane.remove, self._configuration(0))
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
        # The API server reads its webhooks from a cache.
        await asyncio.sleep(1.0)

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
        self.asked += 1
        review = await request.json()
        if self._mode.startswith("held"):
            await asyncio.sleep(float(self._mode.split()[1]))
        response: Json = {"uid": review["request"]["uid"], "allowed": self._mode != "denied"}
        if not response["allowed"]:
            response["status"] = {"code": 403, "message": "no pods today"}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
