"""The HTTP server: routes, limits, the lists of /api/v1 and the metrics.

It must not judge pods; it passes bodies to verbs, admission and reports.
"""

from extender.server.api import Compare, verify_report
from extender.server.app import API_APP, WEBHOOK_APP, OnAnswer, make_app
from extender.server.listener import Listener
from extender.server.ports import PortName, start

__all__ = [
    "API_APP",
    "WEBHOOK_APP",
    "Compare",
    "Listener",
    "OnAnswer",
    "PortName",
    "make_app",
    "start",
    "verify_report",
]
