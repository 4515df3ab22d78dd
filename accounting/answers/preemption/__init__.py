"""Which pods must go so that another one fits, and what is kept for a pod that waits for them to go.

It must not evict.
"""

from accounting.answers.preemption.candidates import NodePod, Occupied, Preemptor, Standing, leaving_for
from accounting.answers.preemption.choice import Choice, Chosen, choose
from accounting.answers.preemption.node_search import NoVictims, Offer, Outcome
from accounting.answers.preemption.nominated import beside_kept, kept_for
from accounting.answers.preemption.order import Cost, cost_of, violations
from accounting.answers.preemption.preempt import preempt, preempting
from accounting.answers.preemption.search import Victims
from accounting.answers.preemption.table import VictimTable

__all__ = [
    "Choice",
    "Chosen",
    "Cost",
    "NoVictims",
    "NodePod",
    "Occupied",
    "Offer",
    "Outcome",
    "Preemptor",
    "Standing",
    "VictimTable",
    "Victims",
    "beside_kept",
    "choose",
    "cost_of",
    "kept_for",
    "leaving_for",
    "preempt",
    "preempting",
    "violations",
]
