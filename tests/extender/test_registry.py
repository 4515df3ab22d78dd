"""Whatever events show pods, from any source and in any order, the registry knows what the model says.

It exists because six sources show a pod, early or late, and several indices hold what is known of it. It must not
repeat the rules, which are in `registry_model`. Invariant: after every step each pod's state, booking, claim, name and
charge agree, every step is one of the table, and nothing is left of a pod that is gone.
"""

from dataclasses import replace

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from accounting.answers import Claim, Claims
from accounting.pod import Pod
from accounting.pod_state import TRANSITIONS, PodEvent, PodState
from extender.cluster import Cluster, Heard, collect, is_older, waits
from extender.config import Settings
from extender.convert import convert_pod, parse_manifests
from extender.kube.reflector import Change
from extender.live.watching import PodInformer, PodSink
from extender.wire import core_v1
from tests.extender.objects import COUNT, Json, asks, container, listed, node, pod, rows, status_of, terminated
from tests.extender.registry_model import Model, Told
from tests.extender.traces import paths_to

NODES, CARDS, MOST_ASKED = ("n1", "n2"), 2, 2
UIDS = ("uid-a1", "uid-a2", "uid-b1", "uid-b2")
BOOKED = (PodState.ASSUMED, PodState.BOUND, PodState.ADDED)

uids = st.sampled_from(UIDS)
unbound = st.builds(
    Told,
    uid=uids,
    name=st.sampled_from(("a", "a", "b")),
    memory=st.integers(1, 3),
    version=st.integers(1, 30),
    rejection=st.sampled_from(("", "", "no room", "no volume")),
)
booked = st.builds(
    Told,
    uid=uids,
    name=st.sampled_from(("a", "a", "b")),
    node=st.sampled_from(NODES),
    memory=st.integers(1, 3),
    card=st.sampled_from((0, 0, 1, None, -1)),
    over=st.booleans(),
    version=st.integers(1, 30),
)
told_of = st.one_of(unbound, booked, booked, st.builds(replace, booked, terminal=st.just(True)))
cardless = st.builds(replace, st.one_of(unbound, booked), asks=st.just(False), card=st.none())


def wire_of(told: Told) -> Json:
    """Return the pod as an API server would show it."""
    # Many pods request no CPU.
    memory = asks(1, told.memory) if told.asks else {"requests": {"cpu": str(told.memory - 1)}}
    twice = asks(1, 2 * told.memory) if told.asks else {}
    text = None
    if told.card is not None and told.node is not None:
        uuid = f"GPU-{told.node}-{told.card}"
        text = "junk:" if told.card < 0 else rows([(uuid, 2 * told.memory, 0)], [(uuid, told.memory, 0)])
    status: Json = status_of("Running", terminated("init")) if told.over else {"phase": "Pending"}
    if told.terminal:
        status["phase"] = "Succeeded"
    if told.rejection:
        reason = {"type": "PodScheduled", "status": "False", "reason": "Other", "message": told.rejection}
        status["conditions"] = [reason]
    given: Json = {"uid": told.uid, "node": told.node, "allocation": text, "status": status}
    made = pod(told.name, [container("main", memory)], inits=[container("init", twice)], **given)
    made["metadata"]["resourceVersion"] = str(told.version)
    return made


def pod_of(told: Told) -> Pod:
    return convert_pod(decoded(told), Settings())


def decoded(told: Told) -> core_v1.Pod:
    return msgspec.convert(wire_of(told), core_v1.Pod, strict=False)


class RegistryMachine(RuleBasedStateMachine):
    """Each rule is an event."""

    @initialize(live=st.booleans(), claims=st.booleans())
    def begin(self, live: bool, claims: bool) -> None:
        made = Claims() if claims else None
        self.cluster = Cluster(Settings(), MOST_ASKED, claims=made, deletions_are_told=live)
        self.registry, informer = self.cluster.registry, PodInformer(self.cluster)
        self.informer, self.sink = informer, PodSink(self.cluster, informer)
        self.claims, self.model = made, Model(live, MOST_ASKED)
        self.questions: dict[str, tuple[Told, Pod]] = {}
        self.shown: dict[str, int] = {}  # UID -> the version that the API server showed last
        self.freed: set[str] = set()
        self.over: set[str] = set()
        events = self.cluster.events
        events.freed.subscribe(lambda event: self.freed.add(event.node))
        events.over.subscribe(lambda event: self.over.add(event.uid))
        for name in NODES:
            (made_node,) = collect(parse_manifests(listed(node(name, CARDS)).encode(), "test", "-"), Settings()).nodes
            self.cluster.put_node(made_node)

    # -- who tells ------------------------------------------------------------------------------------------------

    @rule(told=told_of, heard=st.sampled_from((Heard.FILE, Heard.REQUEST)))
    def put(self, told: Told, heard: Heard) -> None:
        event = PodEvent.SEEN_UNBOUND if told.node is None else PodEvent.SEEN_BOUND
        self.step(told.uid, PodEvent.ENDED if told.terminal else event)
        self.registry.put(pod_of(told), heard)
        self.model.put(told, heard)

    @rule(told=st.one_of(unbound, booked))
    def filter(self, told: Told) -> None:
        self.questions[told.uid] = told, pod_of(told)
        self.filter_again(told.uid)
        self.informer.asked_about(decoded(told))
        self.model.question(told)

    @rule(uid=uids)
    def filter_again(self, uid: str) -> None:
        """Ask with the same object, as an answer from memory does."""
        if uid in self.questions:
            told, asked = self.questions[uid]
            self.step(uid, PodEvent.ASKED)
            self.cluster.remember(asked)
            self.model.ask(told)

    @rule(told=st.one_of(told_of, cardless), times=st.sampled_from((1, 1, 2)), listed=st.booleans())
    def watch(self, told: Told, times: int, listed: bool = False) -> None:
        for _ in range(times):
            raw = msgspec.Raw(msgspec.json.encode(wire_of(told)))
            known = self.registry.entry(told.uid)
            if not listed and known is not None and is_older(str(told.version), known.version):
                # Nothing may change; the invariants compare it.
                assert told.version < self.shown[told.uid]
                self.sink.change(Change.PUT, raw)
                continue
            self.step(told.uid, _event_of(told))
            self.sink.change(Change.LISTED if listed else Change.PUT, raw)
            self.model.see(told, Heard.WATCH)
            self.shown[told.uid] = told.version
            self.check_step()

    @rule(over=st.booleans(), uid=uids)
    def init_ends_or_runs_again(self, over: bool, uid: str) -> None:
        known = self.model.pods.get(uid)
        if known is not None and known.told.node is not None and not known.told.terminal:
            self.watch(replace(known.told, over=over), times=1)

    @rule(told=told_of)
    def read(self, told: Told) -> None:
        self.step(told.uid, _event_of(told))
        self.informer.read(decoded(told))
        self.model.see(told, Heard.READ)
        self.shown[told.uid] = told.version

    @rule(uid=uids)
    def delete(self, uid: str) -> None:
        self.step(uid, PodEvent.GONE)
        self.sink.change(Change.DELETED, msgspec.Raw(msgspec.json.encode({"metadata": {"uid": uid}})))
        self.model.forget(uid)

    @rule(named=st.sets(uids))
    def list_without(self, named: set[str]) -> None:
        self.sink.replaced(named)
        self.model.unlist(named)

    # -- claims and binding ---------------------------------------------------------------------------------------

    @rule(uid=uids)
    def claim(self, uid: str) -> None:
        if self.claims is not None:
            self.step(uid, PodEvent.CLAIM)
            self.registry.claim(uid, Claim("n1", (), 1), 0.0)
            self.model.claim(uid)

    @rule(uid=uids)
    def end_claim(self, uid: str) -> None:
        self.step(uid, PodEvent.UNCLAIM)
        self.registry.end_claim(uid)
        self.model.end_claim(uid)

    @rule()
    def claims_grow_old(self) -> None:
        self.registry.expire_claims(100.0)
        for uid in UIDS:
            self.model.end_claim(uid)

    @rule(told=booked)
    def assume(self, told: Told) -> None:
        known = self.model.pods.get(told.uid)
        booking = None if known is None else known.booking
        node_name = told.node if booking is None else booking.node
        name = told.name if known is None else known.told.name
        made = replace(told, card=max(0, told.card or 0), node=node_name, name=name, over=False)
        self.step(told.uid, PodEvent.ASSUME)
        self.registry.assume(pod_of(made))
        self.model.assume(made)

    @rule(uid=uids)
    def finish_binding(self, uid: str) -> None:
        self.step(uid, PodEvent.FINISH)
        self.registry.finish_binding(uid)
        self.model.finish(uid)

    @rule(uid=uids)
    def forget_binding(self, uid: str) -> None:
        self.step(uid, PodEvent.FORGET)
        self.registry.forget_binding(uid)
        self.model.forget_binding(uid)

    @rule(uid=uids)
    def lose_binding(self, uid: str) -> None:
        self.step(uid, PodEvent.LOSE)
        self.registry.lose_binding(uid)
        self.model.lose(uid)

    # -- what must hold -------------------------------------------------------------------------------------------

    def step(self, uid: str, event: PodEvent) -> None:
        """Return the step that is about to be taken."""
        self.expected = uid, TRANSITIONS[self.registry.state(uid), event]

    def check_step(self) -> None:
        uid, state = self.expected
        known = self.model.pods.get(uid)
        if state is PodState.CLAIMED and known is not None and not known.claim:
            # The same event told of another plugin's rejection.
            state = TRANSITIONS[state, PodEvent.UNCLAIM]
        assert self.registry.state(uid) is state

    @invariant()
    def every_pod_is_known_as_it_should_be(self) -> None:
        if hasattr(self, "expected"):
            self.check_step()
            del self.expected
        assert self.registry.uids == self.model.pods.keys()
        for uid in UIDS:
            assert self.registry.state(uid) is self.model.state(uid)
            entry, known = self.registry.entry(uid), self.model.pods.get(uid)
            if entry is None or known is None:
                continue
            assert entry.heard is known.heard
            assert (entry.unlisted, entry.contradicted) == (known.unlisted, known.contradicted)
            assert self.registry.version(uid) == ("" if known.version is None else str(known.version))
            assert (entry.rejection_at_claim is None) is (known.rejection_at_claim is None)

    @invariant()
    def indices_agree(self) -> None:
        model, registry = self.model, self.registry
        for name in ("a", "b"):
            holder = registry.holder("default", name)
            assert (None if holder is None else holder.pod.uid) == model.names.get(name)
        assert len(registry._entries.names) == len(model.names)
        assert list(registry._entries._asked) == model.asked
        if self.claims is not None:
            assert set(self.claims._claims) == {uid for uid, known in model.pods.items() if known.claim}

    @invariant()
    def those_that_wait_are_noted(self) -> None:
        assert self.registry.waiting() == {pod.uid for pod in self.registry.kept() if waits(pod)}

    @invariant()
    def a_moment_never_changes(self) -> None:
        for moment, then in getattr(self, "moments", ()):
            assert {uid: moment.look(uid) for uid in UIDS} == then

    @rule()
    def begin_a_moment(self) -> None:
        records = self.cluster.cache.pods
        now = {pod.uid: (pod, records.get(pod.uid)) for pod in self.registry.kept()}
        begun = self.registry.moment(), {uid: now.get(uid) for uid in UIDS}
        self.moments = [*getattr(self, "moments", [])[-1:], begun]

    @invariant()
    def bookings_and_charges_agree(self) -> None:
        cache, pods = self.cluster.cache, self.model.pods
        bookings = {uid: known.booking for uid, known in pods.items() if known.booking is not None}
        assert cache.pods.keys() == bookings.keys()
        for uid, booking in bookings.items():
            record = cache.pods[uid]
            assert record.node == booking.node
            assert {use.uuid: use.memory for use in record.held} == booking.held
        assert cache.used("default").memory == sum(booking.charged for booking in bookings.values())
        charged = [known for known in pods.values() if not known.told.terminal]
        assert self.registry.charges.of("default").get(COUNT, 0) == len(charged)
        assert set(cache.cardless_pods) == self.model.cardless.keys()
        assert cache.snapshot().requested.memory.sum() == sum(sum(each.held.values()) for each in bookings.values())

    @invariant()
    def nothing_is_left_of_what_is_gone(self) -> None:
        present = self.model.pods.keys() | self.model.cardless.keys()
        for uid in getattr(self, "present", set()) - present:
            assert paths_to(uid, self.cluster) == []
        self.present = set(present)

    @invariant()
    def what_became_free_or_is_over_is_told(self) -> None:
        held = {
            uid: (known.booking.node, known.booking.held)
            for uid, known in self.model.pods.items()
            if known.booking is not None
        }
        for uid, (name, before) in getattr(self, "held", {}).items():
            _, after = held.get(uid, ("", {}))
            if any(after.get(card, 0) < memory for card, memory in before.items()):
                assert name in self.freed
        assert getattr(self, "known", set()) - self.model.pods.keys() <= self.over
        self.held, self.known = held, set(self.model.pods)
        self.freed.clear()
        self.over.clear()


def _event_of(told: Told) -> PodEvent:
    if told.terminal or not told.asks:
        return PodEvent.GONE
    return PodEvent.SEEN_LATE if told.node is None else PodEvent.SEEN_BOUND


TestRegistry = RegistryMachine.TestCase
TestRegistry.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=25)
