"""The full pass over what is held for VMs, as often as something has changed.

Why it exists: whatever happens to nodes, pods, VMIs and holds ends in the same question, so all events collapse into
one pass. It must not decide. Invariants: only the leader decides and writes; a pass gives way to binds after each
slice; where nothing has changed there is no pass.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from extender.cluster import Cluster
from extender.live.holding.writer import HoldWriter
from extender.live.lanes import Lanes


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """Times in seconds, with their reasons."""

    look_seconds: float = 0.5
    """Between two looks whether something has changed: soon enough for a VM that takes seconds to start."""
    request_seconds: float = 5.0
    """Limit of one write."""
    again_seconds: float = 5.0
    """Before what could not be written is tried again."""


class HoldKeeper:
    """Keeps the sets of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        lanes: Lanes,
        is_leading: Callable[[], bool],
        writer: HoldWriter | None = None,
        settings: HoldSettings | None = None,
    ) -> None:
        """`writer`: writes to the objects that tell of holds; None where there are none."""
        self.passes = 0
        """How many passes were done so far."""
        self._cluster = cluster
        self._lanes = lanes
        self._is_leading = is_leading
        self._writer = writer
        self._settings = settings or HoldSettings()
        self._version = -1
        """Of the ledger, as of the last pass that had nothing left to do."""

    async def run(self) -> None:
        """Keep them until cancelled."""
        while True:
            await asyncio.sleep(self._settings.look_seconds)
            if not self._is_leading():
                self._version = -1
                continue
            await self._look()

    async def _look(self) -> None:
        version = self._cluster.raw.version
        if version != self._version:
            self._version = version
            self.passes += 1
            await self._lanes.maintain(self._cluster.hold_sets.full_pass())
        if self._writer is not None and not await self._writer.write_all():
            await asyncio.sleep(self._settings.again_seconds)
