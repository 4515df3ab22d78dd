"""The live extender put together: reflectors, bind, leadership, waking, events.

It must not contain logic beyond starting and stopping. Invariants: it is ready only after consistent lists that began
when the lease was certain; no bug ends background work; while it stops, nothing new is started, binds in flight are
settled, and the lease is given up only if all of them are.

    start:  lists and watches, election -> elected: list again -> ready
    stop:   not ready -> (the server stops accepting) -> binds settled -> election ends -> lease given up -> the rest
"""

import asyncio
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from accounting.answers import Claims
from accounting.errors import InvariantViolation
from accounting.status import Problem, ProblemCode
from extender.cluster import Cluster, Seen
from extender.config import Settings
from extender.journal import Journal, JournaledSink, Recorder
from extender.kube.client import KubeClient
from extender.kube.discovery import OptionalReflector, OptionalResource, Presence
from extender.kube.events import EventRecorder
from extender.kube.paths import DISRUPTION_BUDGETS, NODES, PODS, RESOURCE_QUOTAS, Resource, api_path
from extender.kube.reflector import Reflector, ReflectorSettings, Sink
from extender.live.background import Background
from extender.live.binding import Binder, LateBindings
from extender.live.comparing import (
    Comparer,
    Comparison,
    HolderView,
    Machines,
    NodeView,
    PodView,
    QuotaView,
    Slices,
    ToldClaims,
    ToldHolds,
)
from extender.live.evicting import Evictor
from extender.live.holding import HoldKeeper, HoldWriter
from extender.live.hooks import LiveHooks, Refused
from extender.live.leading import LeaderElector, LeaderLabel, LeaseFollower, LeaseHolder, SoleLeader
from extender.live.locks import NodeLocks, OwnerState
from extender.live.refusals import RefusalReporter
from extender.live.settings import LiveSettings
from extender.live.tainting import TaintKeeper
from extender.live.waking import Waker
from extender.live.watching import (
    DRA_RESOURCES,
    VMIS,
    BudgetSink,
    Facts,
    FreshClaims,
    HandshakeKeeper,
    HoldSink,
    NodeSink,
    OvercommitReporter,
    PodInformer,
    PodSink,
    QuotaSink,
    RawOvercommitReporter,
    ResourceClaimSink,
    dra_reflectors,
    dra_sinks,
    hold_reflectors,
    hold_resource,
    vmi_reflectors,
)
from extender.logs import logger

#: Pods that have ended hold nothing. A watch with this selector reports them as deleted.
RUNNING_PODS = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
#: Limit for giving up the Lease. With everything before it, this stays within the usual terminationGracePeriodSeconds
#: of 30.
_RELEASE_SECONDS = 5.0
#: A missing permission is rarely granted soon, so the pause between tries is long.
_BUDGET_BACKOFF_SECONDS = 1.0, 300.0


class LiveExtender:
    """Everything beside the HTTP server."""

    def __init__(
        self, client: KubeClient, settings: Settings, live: LiveSettings, journal: Journal | None = None
    ) -> None:
        self.client = client
        self.claims = Claims() if live.claims else None
        settings = replace(settings, evicts=live.evict.evicts)
        self.cluster = Cluster(settings, claims=self.claims, deletions_are_told=True)
        self.facts, informer = Facts(), PodInformer(self.cluster)
        self.events = EventRecorder(client, live.identity)
        self.leadership = self._make_leadership(live)
        self.overcommit = OvercommitReporter(self.cluster.cache, self.events, self._answers)
        self.raw_overcommit = RawOvercommitReporter(self.cluster.raw, self.events, self._answers)
        self.locks = NodeLocks(client, self.facts, self._owner_state)
        self.binder = Binder(self.cluster, informer, client, self.locks, self.leadership, live.bind)
        self.late_bindings = LateBindings(self.cluster, self.binder.reader)
        self.handshakes = HandshakeKeeper(self.cluster, self.facts, client, self.leadership, time.time)
        self.waker = Waker(self.cluster, client, self._answers, live.wake)
        # As for Bindings: half a lease, if there is one.
        evict = replace(live.evict, request_seconds=min(live.evict.request_seconds, live.bind.write_seconds))
        self.evictor = Evictor(
            self.cluster, client, self.leadership, self.binder.reader, self.events, self._answers, evict
        )
        self.reflectors = self._make_reflectors(live.reflector, informer, journal)
        self._budgets = self._make_budget_reflector(live.reflector, journal)
        watching = client, self.cluster, live.reflector, _journaling(journal)
        source, of_dra = settings.hold_source, dra_sinks(self.cluster)
        holds = None if source is None else HoldSink(self.cluster, source)
        self.optional = [
            *dra_reflectors(*watching, of_dra),
            *vmi_reflectors(*watching),
            *hold_reflectors(*watching, holds),
        ]
        """What not every API server has."""
        self.holds = self._make_hold_keeper(holds, live, journal)
        self.taints = None
        """Keeps DRA off cards that pods hold, if that is wanted."""
        if live.taints is not None:
            self.taints = TaintKeeper(self.cluster, client, self.leadership, self._answers, live.taints)
        self.fresh_claims = self._make_fresh_claims(of_dra["ResourceClaim"])
        self.binder.recheck_by(self.fresh_claims.look)
        self.cluster.unseen = self.unseen
        self.refusals = RefusalReporter(self.events)
        self.hooks = LiveHooks(
            self.cluster,
            informer,
            Refused(self.waker, self.evictor, self.refusals),
            self.leadership,
            self.is_synced,
            lambda: asyncio.get_running_loop().time(),
        )
        views = (PodView(self.cluster, RUNNING_PODS), NodeView(self.cluster), QuotaView(self.cluster))
        self.comparer = Comparer(client, views, live.compare, self._views_of_holders)
        self.compared: Comparison | None = None
        """The last comparison with the API server."""
        recorder = None if journal is None else Recorder(journal, settings)
        self.on_answer = None if recorder is None else recorder.on_answer
        """Called with a verb, its body and its answer."""
        self._subscribe(recorder)
        self._live = live
        self._background, self._electing = Background(), Background()
        self._stopping = False

    # -- asking ---------------------------------------------------------------------------------------------------

    def is_synced(self) -> bool:
        """Whether every resource was listed, but for those that the API server does not have or show."""
        return all(reflector.state.synced for reflector in self.reflectors) and all(
            optional.is_settled for optional in self.optional
        )

    def unseen(self) -> list[Problem]:
        """Return the resources whose objects may exist and are not seen, each with the reason."""
        return [
            Problem(ProblemCode.UNSEEN_RESOURCE, f"resource {optional.wanted.name}", optional.unseen)
            for optional in self.optional
            if optional.unseen
        ]

    @property
    def is_stopping(self) -> bool:
        """Whether it is stopping."""
        return self._stopping

    def is_ready(self) -> bool:
        """Whether kube-scheduler should ask this replica."""
        return not self._stopping and self._answers() and not self._is_cut_off()

    def _answers(self) -> bool:
        return not self.hooks.why_not_ready()

    def _is_cut_off(self) -> bool:
        longest = self._live.failing_seconds
        needed = any(reflector.failing_seconds() > longest for reflector in self.reflectors)
        return needed or any(optional.failing_seconds() > longest for optional in self.optional)

    async def compare(self) -> Comparison:
        """Compare the cache with the API server."""
        self.compared = await self.comparer.compare()
        return self.compared

    # -- running --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything in the background."""
        if isinstance(self.leadership, LeaseHolder):
            self._electing.spawn(self.leadership.run)
        else:
            # Started before the reflectors, so that it waits for their first lists.
            self._background.begin(self.leadership.run())
            await asyncio.sleep(0)
        for reflector in self.reflectors:
            self._background.spawn(reflector.run)
        for optional in self.optional:
            self._background.spawn(optional.run)
        # Nothing waits for this one: without permission to list budgets they stay unknown.
        self._background.spawn(self._budgets.run)
        for part in (self.waker, self.evictor, self.events, self.handshakes, self.raw_overcommit):
            self._background.spawn(part.run)
        for optional_part in (self.holds, self.taints):
            if optional_part is not None:
                self._background.spawn(optional_part.run)
        self._background.spawn(self._compare_now_and_then)
        if self._live.labelled_pod is not None:
            self._background.spawn(LeaderLabel(self.client, self._live.labelled_pod, self._answers).run)

    def begin_stop(self) -> None:
        """Stop being ready; requests are still answered."""
        self._stopping = True

    async def stop(self, seconds: float) -> None:
        """Settle what is in flight, give up the lease, and end."""
        self.begin_stop()
        settled = await self.binder.drain(seconds)
        # The lease is renewed until all is settled, and no longer when it is given up.
        await self._electing.end()
        if isinstance(self.leadership, LeaseHolder):
            with suppress(TimeoutError):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self.leadership.release(settled=settled)
        self.comparer.stop()
        await self._background.end()
        await self.client.close()

    async def _elected(self, others_unknown: bool) -> None:  # noqa: FBT001 - it is called back
        """List everything again, and make sure that no write of another process can still take effect unseen.

        Cancelling this leaves the reflectors running.
        """
        loop, longest = asyncio.get_running_loop(), self._live.bind.http_timeout_seconds
        end = loop.time() + longest
        await self._list_everything()
        if others_unknown and not await self.late_bindings.rule_out(max(0.0, end - loop.time())):
            await asyncio.sleep(end - loop.time())
            await self._list_everything()
        self.cluster.hold_sets.take_over()
        await self.overcommit.look_at_everything()

    async def _list_everything(self) -> None:
        of_holds = [
            each.reflector for each in self.optional if each.reflector is not None and self._tells_of_holds(each)
        ]
        await asyncio.gather(*(reflector.list_again() for reflector in (*self.reflectors, *of_holds)))

    def _tells_of_holds(self, optional: OptionalReflector) -> bool:
        source = self.cluster.settings.hold_source
        return source is not None and optional.wanted == hold_resource(source) and optional.is_settled

    async def _compare_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._live.compare_every_seconds * random.uniform(0.9, 1.1))  # noqa: S311 - jitter
            if self._answers():
                await self._compare_and_mend()

    async def _compare_and_mend(self) -> None:
        """Compare, and list again what differs."""
        found = await self.compare()
        if found.differing:
            logger().error("cache differs from the API server", differing=found.differing, some=found.differences[:5])
        optional = [each.reflector for each in self.optional if each.reflector is not None]
        for reflector in (*self.reflectors, *optional):
            if reflector.path in found.paths:
                await reflector.list_again()

    # -- parts ----------------------------------------------------------------------------------------------------

    def _views_of_holders(self) -> list[HolderView]:
        """Return the views of what was listed of other holders."""
        kinds: dict[OptionalResource, tuple[Any, str]] = {
            DRA_RESOURCES["ResourceClaim"]: (ToldClaims(self.cluster), "resourceclaim"),
            DRA_RESOURCES["ResourceSlice"]: (Slices(self.cluster), "resourceslice"),
            VMIS: (Machines(self.cluster), "vmi"),
        }
        source = self.cluster.settings.hold_source
        if source is not None:
            kinds[hold_resource(source)] = ToldHolds(self.cluster, source), "hold"
        found = []
        for optional in self.optional:
            if optional.reflector is None or optional.presence is not Presence.SYNCED or optional.wanted not in kinds:
                continue
            group_version, _, plural = optional.reflector.path.rpartition("/")
            kind, word = kinds[optional.wanted]
            found.append(HolderView(kind, Resource(group_version, plural), word))
        return found

    def _make_fresh_claims(self, known: Sink) -> FreshClaims:
        (claims_of,) = (each for each in self.optional if each.wanted == DRA_RESOURCES["ResourceClaim"])
        if not isinstance(known, ResourceClaimSink):
            raise InvariantViolation("claims have another sink")
        return FreshClaims(self.client, self.cluster.resource_claims, claims_of, known)

    def _make_hold_keeper(
        self, sink: HoldSink | None, live: LiveSettings, journal: Journal | None
    ) -> HoldKeeper | None:
        """Return what decides where devices are held; None with hold sets off."""
        source = self.cluster.settings.hold_source
        if not self.cluster.settings.hold_sets:
            return None
        writer = None
        if source is not None and sink is not None:
            told = _journaling(journal)(sink, "Hold")
            seconds = min(live.bind.write_seconds, live.holds.request_seconds)
            writer = HoldWriter(self.client, self.cluster, source, (sink, told), self.leadership, seconds)
        return HoldKeeper(self.cluster, self.binder.lanes, self._answers, writer, live.holds)

    def _make_leadership(self, live: LiveSettings) -> SoleLeader | LeaseHolder:
        if live.follow_lease:
            host, before = socket.gethostname(), live.predecessors
            return LeaseFollower(self.client, host, live.lease, self._elected, predecessors=before)
        if live.leader_elect:
            gone = frozenset() if live.predecessors is None else live.predecessors.gone
            return LeaderElector(self.client, live.identity, live.lease, self._elected, gone=gone)
        return SoleLeader(self._elected)

    def _make_reflectors(
        self, settings: ReflectorSettings, informer: PodInformer, journal: Journal | None
    ) -> list[Reflector]:
        journaled = _journaling(journal)
        nodes, pods = NodeSink(self.cluster, self.facts), PodSink(self.cluster, informer)
        quotas = QuotaSink(self.cluster)
        return [
            Reflector(self.client, api_path(NODES), journaled(nodes, "Node"), settings, known=self.facts.nodes.keys),
            Reflector(
                self.client,
                api_path(PODS),
                journaled(pods, "Pod"),
                settings,
                dict(RUNNING_PODS),
                known=self.cluster.registry.watched,
            ),
            Reflector(self.client, api_path(RESOURCE_QUOTAS), journaled(quotas, "ResourceQuota"), settings),
        ]

    def _make_budget_reflector(self, settings: ReflectorSettings, journal: Journal | None) -> Reflector:
        sink = _journaling(journal)(BudgetSink(self.cluster.residents.budgets), "PodDisruptionBudget")
        settings = replace(settings, backoff_seconds=_BUDGET_BACKOFF_SECONDS)
        return Reflector(self.client, api_path(DISRUPTION_BUDGETS), sink, settings)

    def _subscribe(self, recorder: Recorder | None) -> None:
        """Say who listens to which of the cluster's events: all of it is here."""
        events, waker, evictor = self.cluster.events, self.waker, self.evictor
        if recorder is not None:
            recorder.subscribe(events)
        events.freed.subscribe(lambda event: waker.freed(event.node))
        events.node_changed.subscribe(
            lambda event: waker.freed(event.name), lambda event: self.overcommit.look_at_node(event.name)
        )
        events.card_changed.subscribe(lambda event: self.overcommit.look_at_node(event.node))
        events.lock_changed.subscribe(lambda event: self.locks.notify(event.node))
        events.quota_changed.subscribe(lambda _: waker.freed_everywhere())
        events.raw_budgets_changed.subscribe(lambda _: waker.freed_everywhere())
        events.claim_given.subscribe(lambda event: self.binder.claim_given(event.uid))
        events.contradicted.subscribe(lambda event: self.binder.contradicted(event.uid))
        events.over.subscribe(
            lambda event: waker.forget(event.uid),
            lambda event: evictor.forget(event.uid),
            lambda event: self.refusals.forget(event.uid),
            lambda event: self.overcommit.look_at_pod(event.uid),
        )
        events.seen.subscribe(self._pod_seen)

    def _pod_seen(self, event: Seen) -> None:
        """A pod was seen on the watch: settle its bind, look whether its cards are over-committed."""
        uid = event.uid
        self.binder.seen(uid)
        if uid in self.cluster.cache.pods:
            self.waker.forget(uid)
            self.evictor.forget(uid)
        self.overcommit.look_at_pod(uid)

    def _owner_state(self, node: str, namespace: str, name: str) -> OwnerState:
        pod = self.cluster.pod_named(namespace, name)
        if pod is None or not pod.asks:
            return OwnerState.UNKNOWN
        booked = self.cluster.cache.pods.get(pod.uid)
        return OwnerState.ELSEWHERE if booked is None or booked.node != node else OwnerState.BOOKED


def _journaling(journal: Journal | None) -> Callable[[Sink, str], Sink]:
    """Return what lets a journal record what goes to a sink."""

    def journaled(sink: Sink, kind: str) -> Sink:
        return sink if journal is None else JournaledSink(sink, kind, journal)

    return journaled
