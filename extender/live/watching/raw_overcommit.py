"""Reporting nodes on which more whole devices are used than there are.

Why it exists: a VM that runs, a pod of another scheduler and a node that lost devices ask nobody, so more may be used
than there is, and both sides must be told who the others are. It must not change anything. Invariants: the leader
reports a node and key once for the same users, and again only if it was not over-committed in between; nothing is
reported before everything was listed; where nothing has changed, nothing is looked at.
"""

import asyncio
from collections.abc import Callable

from accounting.holders import Overcommitted, RawDevices, overcommitted, overcommitted_places
from extender.kube.events import EventRecorder, PodRef
from extender.logs import logger

_LOOK_SECONDS = 1.0
#: Of a larger number the others come with the next look: a line and some events for each of 10,000 nodes take too long.
_MOST_AT_ONCE = 100


class RawOvercommitReporter:
    """Reports over-committed nodes, and remembers what was reported, by node and key."""

    def __init__(self, devices: RawDevices, events: EventRecorder, is_on_duty: Callable[[], bool]) -> None:
        self.reports = 0
        self._devices = devices
        self._events = events
        self._is_on_duty = is_on_duty
        self._version: int | None = None
        self._last = ("", "")
        self._reported: dict[tuple[str, str], Overcommitted] = {}

    async def run(self, look_seconds: float = _LOOK_SECONDS) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(look_seconds)
            self.look()

    def look(self) -> None:
        """Report what is over-committed now and was not, or by others."""
        if self._devices.version == self._version or not self._is_on_duty():
            return
        places = overcommitted_places(self._devices)
        gone = self._reported.keys() - places
        for place in gone:
            del self._reported[place]
        if len(places) > _MOST_AT_ONCE:
            # Those that are not told of yet come first, then the others in turn: they may have other users by now.
            places.sort(key=lambda place: (place in self._reported, place <= self._last, place))
            places = places[:_MOST_AT_ONCE]
            self._last = places[-1]
        else:
            self._version = self._devices.version
        for each in overcommitted(self._devices, places):
            if self._reported.get((each.node, each.key)) != each:
                self._reported[each.node, each.key] = each
                self._report(each)

    def _report(self, over: Overcommitted) -> None:
        self.reports += 1
        numbers = f"{over.used} are used of {over.allocatable}: {', '.join(over.users)}"
        logger().error("whole devices over-committed", node=over.node, key=over.key, why=numbers)
        for pod in over.pods:
            about = PodRef(pod.namespace, pod.name, pod.uid)
            note = f"over-committed on node {over.node}: {over.key}: {numbers}"
            self._events.warning(about, "DeviceOvercommitted", "Accounting", note)
