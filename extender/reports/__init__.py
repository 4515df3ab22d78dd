"""What commands and the API show, as JSON values.

They must not print and must not change anything.
"""

from extender.reports.explaining import explain
from extender.reports.render import account

__all__ = ["account", "explain"]
