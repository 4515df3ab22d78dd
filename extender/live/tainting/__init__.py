"""Keeping DRA off cards that pods with annotations hold.

It must not decide who holds a card.
"""

from extender.live.tainting.keeper import TAINT_RULES, TaintKeeper, TaintSettings

__all__ = ["TAINT_RULES", "TaintKeeper", "TaintSettings"]
