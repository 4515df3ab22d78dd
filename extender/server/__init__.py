"""The HTTP server: routes, limits, the lists of /api/v1 and the metrics.

It must not judge; it passes bodies to verbs, admission and reports.
"""

from extender.server.api import Compare, verify_report
from extender.server.app import WEBHOOK_APP, OnAnswer, make_app, start

__all__ = ["WEBHOOK_APP", "Compare", "OnAnswer", "make_app", "start", "verify_report"]
