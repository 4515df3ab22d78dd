"""The shell around `accounting`: HTTP, Kubernetes objects, configuration and the command line.

Why it exists: everything that does I/O or knows a wire format is here. It must not contain a rule of accounting.
Invariant: `extender` imports `accounting`, never the other way.
"""

__version__ = "0.1.0"
