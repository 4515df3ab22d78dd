"""The specification of the API server for tests, judged on a real one."""

import pytest

from tests.apiserver.conformance import run_conformance
from tests.e2e.control_plane import ADMIN_TOKEN, ControlPlane


@pytest.mark.scenario("conformance")
@pytest.mark.quick
async def test_every_case_holds_on_kube_apiserver(plane: ControlPlane) -> None:
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    assert await run_conformance(plane.url, headers, verify_tls=False) == []
