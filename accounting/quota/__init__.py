"""What namespace quotas limit, and placements that keep within what they leave.

It knows single nodes only where a limit depends on the cards that are chosen.
"""

from accounting.quota.budget import Chosen, choose_within, within
from accounting.quota.limits import (
    UNLIMITED,
    Budget,
    Exceeded,
    Limit,
    QuotaCheck,
    QuotaTable,
    limit_text,
    passed_problem,
)
from accounting.quota.objects import Quota, read_quota
from accounting.quota.report import Charge, count_differences, differences_text, namespace_differences, pod_charges

__all__ = [
    "UNLIMITED",
    "Budget",
    "Charge",
    "Chosen",
    "Exceeded",
    "Limit",
    "Quota",
    "QuotaCheck",
    "QuotaTable",
    "choose_within",
    "count_differences",
    "differences_text",
    "limit_text",
    "namespace_differences",
    "passed_problem",
    "pod_charges",
    "read_quota",
    "within",
]
