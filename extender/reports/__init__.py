"""The answers of commands and the API, as JSON values.

They must not print and must not change anything.
"""

from extender.reports.container_requests import asks, request_text
from extender.reports.details import decision_entry, pod_detail
from extender.reports.explaining import explain
from extender.reports.lists import VerifyLists, claim_entries, hold_entries, node_entries, pod_entries
from extender.reports.marks import MARKS, WRONG, card_marks, wanted_marks
from extender.reports.options import options
from extender.reports.render import account, node_devices
from extender.reports.sums import Usage, holder_counts, summary, summary_in_steps, usage
from extender.reports.usage_records import usage_csv, usage_records
from extender.reports.why import why, why_in_steps

__all__ = [
    "MARKS",
    "WRONG",
    "Usage",
    "VerifyLists",
    "account",
    "asks",
    "card_marks",
    "claim_entries",
    "decision_entry",
    "explain",
    "hold_entries",
    "holder_counts",
    "node_devices",
    "node_entries",
    "options",
    "pod_detail",
    "pod_entries",
    "request_text",
    "summary",
    "summary_in_steps",
    "usage",
    "usage_csv",
    "usage_records",
    "wanted_marks",
    "why",
    "why_in_steps",
]
