"""Choosing cards for the containers of one pod, on many nodes at once.

It knows snapshots and one pod. It must not know quotas, other pods' claims or the wire formats.
"""

from accounting.cards.assignment import Assignment
from accounting.cards.card_fit import fitting_cards, free_instances, memory_of, of_one_size, wanted_memory
from accounting.cards.exact_fit import STEPS
from accounting.cards.fit import Fit, fit_pod
from accounting.cards.greedy import Preference, bound_columns, ranking
from accounting.cards.score import MAX_SCORE, score_nodes
from accounting.cards.selection_mask import accepted, accepted_modes, accepted_types, accepted_uuids, accepted_vendor

__all__ = [
    "MAX_SCORE",
    "STEPS",
    "Assignment",
    "Fit",
    "Preference",
    "accepted",
    "accepted_modes",
    "accepted_types",
    "accepted_uuids",
    "accepted_vendor",
    "bound_columns",
    "fit_pod",
    "fitting_cards",
    "free_instances",
    "memory_of",
    "of_one_size",
    "ranking",
    "score_nodes",
    "wanted_memory",
]
