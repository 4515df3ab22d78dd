"""kube-scheduler's verbs, from body to body.

They must not know HTTP. Invariant: filter and prioritize only read; bind books.
"""

from extender.verbs.decisions import KEPT, Decision, Decisions
from extender.verbs.hooks import Hooks
from extender.verbs.placing import placed
from extender.verbs.preempting import preemptor_of
from extender.verbs.texts import wire_text
from extender.verbs.verbs import Verbs

__all__ = ["KEPT", "Decision", "Decisions", "Hooks", "Verbs", "placed", "preemptor_of", "wire_text"]
