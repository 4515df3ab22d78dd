"""Exact accounting of shared GPU cards, and the choice of cards for a pod: pure, synchronous, deterministic.

Why it exists: everything that must be right whatever the network does is here, and a test can simply call it.
It must not know HTTP, JSON, Kubernetes clients, clocks, logs or files; import contracts in CI keep it so.
Invariant: asking never mutates, committing only records, and what a pod holds is a function of the pod as it is now.
"""
