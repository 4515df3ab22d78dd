"""Deciding where the devices of VMs are held, and writing it where objects tell of holds.

It must not decide which set goes where; `accounting.holders.hold_sets` does.
"""

from extender.live.holding.keeper import HoldKeeper, HoldSettings
from extender.live.holding.writer import HoldWriter

__all__ = ["HoldKeeper", "HoldSettings", "HoldWriter"]
