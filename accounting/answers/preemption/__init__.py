"""Which pods must go so that another one fits, and what is kept for a pod that waits for them to go.

Nothing here evicts anybody.
"""

from accounting.answers.preemption.candidates import NOT_STARTED, PODS, NodePod, Occupied, Preemptor, Room, Standing
from accounting.answers.preemption.node_search import NoVictims, Offer, Outcome
from accounting.answers.preemption.order import Cost, cost_of, violations
from accounting.answers.preemption.preempt import preempt
from accounting.answers.preemption.search import Victims

__all__ = [
    "NOT_STARTED",
    "PODS",
    "Cost",
    "NoVictims",
    "NodePod",
    "Occupied",
    "Offer",
    "Outcome",
    "Preemptor",
    "Room",
    "Standing",
    "Victims",
    "cost_of",
    "preempt",
    "violations",
]
