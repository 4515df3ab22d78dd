"""`kubectl gpu-extender`: the answers of a running extender, shown as kubectl would.

It must not compute anything; it asks the extender. `main` is the plugin, `complete` tells kubectl's own completion what
may come next.
"""

from extender.kubectl.completing import complete
from extender.kubectl.main import main

__all__ = ["complete", "main"]
