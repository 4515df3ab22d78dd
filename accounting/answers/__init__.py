"""The answers of the verbs and commands: filter, allocate, explain, claims and the report.

This is the top of `accounting`: it may import every other package, and none of them imports it.
"""

from accounting.answers.allocate import Placement, allocate, allocate_in
from accounting.answers.blocking import pods_in_the_way
from accounting.answers.claims import Claim, Claims, claim_of, claim_on, crowded_rows, hold_claim, place_beside
from accounting.answers.explain import explain_node
from accounting.answers.filter import feasible_on, filter_nodes, hopeless
from accounting.answers.missing import CardLack, Near, nearest
from accounting.answers.options import CardOption, RawOption, card_options, raw_options
from accounting.answers.raw import raw_reasons, raw_request, score_raw, with_raw
from accounting.answers.raw_report import RawReport, Reports, UnitHolder, raw_reports, raw_reports_in_steps
from accounting.answers.report import DeviceReport, FoundProblems, device_reports, node_report, problem_counts, problems
from accounting.answers.verdicts import CodeArray, Verdict, Verdicts

__all__ = [
    "CardLack",
    "CardOption",
    "Claim",
    "Claims",
    "CodeArray",
    "DeviceReport",
    "FoundProblems",
    "Near",
    "Placement",
    "RawOption",
    "RawReport",
    "Reports",
    "UnitHolder",
    "Verdict",
    "Verdicts",
    "allocate",
    "allocate_in",
    "card_options",
    "claim_of",
    "claim_on",
    "crowded_rows",
    "device_reports",
    "explain_node",
    "feasible_on",
    "filter_nodes",
    "hold_claim",
    "hopeless",
    "nearest",
    "node_report",
    "place_beside",
    "pods_in_the_way",
    "problem_counts",
    "problems",
    "raw_options",
    "raw_reasons",
    "raw_reports",
    "raw_reports_in_steps",
    "raw_request",
    "score_raw",
    "with_raw",
]
