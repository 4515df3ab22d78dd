"""Writing the journal of a live extender.

It must not decide anything. Invariant: entries are in the order in which they took effect, so `replaying` can feed them
one after another.
"""

import base64

import msgspec

from extender import __version__
from extender.cluster import events as told
from extender.config import Settings
from extender.convert import pack_rows
from extender.journal.journal import FORMAT, Journal


class Recorder:
    """Writes a cluster's events as journal entries."""

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        journal.write(
            {"op": "start", "format": FORMAT, "version": __version__, "settings": msgspec.to_builtins(settings)}
        )

    def subscribe(self, events: told.Events) -> None:
        """Record these events from now on."""
        write = self._journal.write
        events.assumed.subscribe(self._assumed)
        events.finished.subscribe(lambda event: write({"op": "finish", "uid": event.uid}))
        events.forgotten.subscribe(lambda event: write({"op": "forget", "uid": event.uid}))
        events.refused.subscribe(self._refused)
        events.lost.subscribe(lambda event: write({"op": "lose", "uid": event.uid}))
        events.pod_read.subscribe(self._pod_read)
        events.claimed.subscribe(self._claimed)
        events.unclaimed.subscribe(lambda event: write({"op": "unclaim", "uid": event.uid}))
        events.plugin_changed.subscribe(self._plugin_changed)
        events.workload_expected.subscribe(self._workload_expected)
        events.raw_budgets_changed.subscribe(self._raw_budgets_changed)
        events.holds_decided.subscribe(self._holds_decided)

    def on_answer(self, verb: str, body: bytes, answer: bytes) -> None:
        """Record a verb's question and answer. kube-scheduler sent the body, so it may not be text."""
        try:
            question = {"body": body.decode()}
        except UnicodeDecodeError:
            question = {"base64": base64.b64encode(body).decode()}
        self._journal.write({"op": "verb", "verb": verb, **question, "answer": answer.decode(errors="replace")})

    def _assumed(self, event: told.Assumed) -> None:
        pod = event.pod
        rows = pack_rows(pod.allocation) if isinstance(pod.allocation, tuple) else ""
        self._journal.write({"op": "assume", "uid": pod.uid, "node": pod.node, "allocation": rows})

    def _refused(self, event: told.Refused) -> None:
        self._journal.write({"op": "refuse", "uid": event.uid, "node": event.node, "why": event.why})

    def _pod_read(self, event: told.PodRead) -> None:
        self._journal.write({"op": "change", "kind": "Pod", "change": event.change, "object": event.text})

    def _claimed(self, event: told.Claimed) -> None:
        claim = event.claim
        entry = {"op": "claim", "uid": event.uid, "node": claim.node, "uses": claim.uses, "count": claim.count}
        further = {"further_counts": claim.further_counts} if claim.further_counts else {}
        self._journal.write(entry | further)

    def _plugin_changed(self, event: told.PluginChanged) -> None:
        self._journal.write({"op": "plugin", "node": event.node, "vendor": event.vendor, "alive": event.alive})

    def _workload_expected(self, event: told.WorkloadExpected) -> None:
        self._journal.write({"op": "expect", "mix": event.workload.mix, "plan": event.workload.plan})

    def _raw_budgets_changed(self, event: told.RawBudgetsChanged) -> None:
        hard = [(namespace, key, units) for (namespace, key), units in sorted(event.budgets.items())]
        self._journal.write({"op": "rawbudgets", "hard": hard})

    def _holds_decided(self, event: told.HoldsDecided) -> None:
        vmi = event.key
        self._journal.write({"op": "holds", "namespace": vmi.namespace, "vmi": vmi.name, "holds": event.holds})
