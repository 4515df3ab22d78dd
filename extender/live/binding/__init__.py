"""Binding pods: one write that carries the cards, and finding out what became of it.

It must not know HTTP servers.
"""

from extender.live.binding.attempt import BindSettings
from extender.live.binding.binder import Binder
from extender.live.binding.latebindings import LateBindings
from extender.live.binding.reader import PodReader

__all__ = ["BindSettings", "Binder", "LateBindings", "PodReader"]
