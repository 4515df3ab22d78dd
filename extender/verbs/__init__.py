"""kube-scheduler's verbs, from body to body.

They must not know HTTP. filter and prioritize only read; bind books.
"""

from extender.verbs.hooks import Hooks
from extender.verbs.placing import placed
from extender.verbs.verbs import Verbs

__all__ = ["Hooks", "Verbs", "placed"]
