"""The extender on a live cluster: what is watched, how a pod is bound, who leads.

It must not know HTTP servers. Invariant: bind is the single writer of a pod's cards.
"""
