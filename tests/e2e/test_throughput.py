"""3,000 pods over 1,000 and over 5,000 nodes, in the four ways of throughput.py."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.control_plane import ControlPlane
from tests.e2e.throughput import Throughput
from tests.e2e.world import Kube

_PODS = 3000
#: A round over 5,000 nodes takes minutes, and there what is measured lies further apart.
_ROUNDS = {1000: 2, 5000: 1}


@pytest.mark.scenario(2)
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("nodes", [1000, 5000])
async def test_throughput(nodes: int, plane: ControlPlane, folder: Path, figures: dict[str, Any]) -> None:
    async with plane.session() as session:
        kube, rounds = Kube(session), _ROUNDS[nodes]
        measured = await Throughput(plane, kube, folder, nodes=nodes, pods=_PODS, rounds=rounds).run()
    figures.setdefault(plane.binaries.version, {})[f"2-throughput, {nodes} nodes"] = measured
