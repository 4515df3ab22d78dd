"""Reporting pods on over-committed cards.

Why it exists: if two extenders both gave out a card, which no lease can fully prevent, this shows only when both pods
are seen; the same is true of a card that shrank and of a peak that counts again. It must not change anything.
Invariants: the leader reports a pod once for the same cards, and again only if it was not over-committed in between;
nothing is reported before everything was listed, because a half-known cluster proves nothing.
"""

from collections.abc import Callable

from accounting.pod_record import PodRecord
from accounting.state.cache import Cache
from extender.kube.events import EventRecorder, PodRef
from extender.kube.pace import Pace
from extender.logs import logger


class OvercommitReporter:
    """Reports over-committed pods, and remembers what was reported, by pod UID."""

    def __init__(self, cache: Cache, events: EventRecorder, is_on_duty: Callable[[], bool]) -> None:
        self.reports = 0
        self._cache = cache
        self._events = events
        self._is_on_duty = is_on_duty
        self._reported: dict[str, tuple[str, ...]] = {}

    def look_at_pod(self, uid: str) -> None:
        """Check the cards of a pod that was seen."""
        self._look(uid, on_duty=self._is_on_duty)

    def look_at_node(self, node: str) -> None:
        """Check the pods of a node that changed, or on which something changed."""
        for record in self._cache.pods_on(node):
            self.look_at_pod(record.uid)

    async def look_at_everything(self) -> None:
        """Check every pod after everything was listed, just before this replica leads."""
        pace = Pace()
        for uid in list(self._cache.pods):
            self._look(uid, on_duty=lambda: True)
            await pace.breathe()

    def _look(self, uid: str, on_duty: Callable[[], bool]) -> None:
        cards = self._cache.overcommitted_cards(uid)
        if not cards:
            self._reported.pop(uid, None)
        elif self._reported.get(uid) != cards and on_duty():
            self._reported[uid] = cards
            self._report(self._cache.pods[uid], cards)

    def _report(self, record: PodRecord, cards: tuple[str, ...]) -> None:
        self.reports += 1
        claimed = self._cache.claimed.on(str(record.node))
        claims = sorted({name for uuid in cards if uuid in claimed for name, _ in claimed[uuid].holders})
        others = {"claims": claims} if claims else {}
        logger().error(
            "cards over-committed", pod=record.key, podUID=record.uid, node=record.node, cards=cards, **others
        )
        note = f"over-committed cards: {', '.join(cards)}"
        if claims:
            note += f"; DRA claims there: {', '.join(claims)}"
        self._events.warning(
            PodRef(record.namespace, record.name, record.uid), "DeviceOvercommitted", "Accounting", note
        )
