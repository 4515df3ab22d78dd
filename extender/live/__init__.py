"""The extender on a live cluster: what it watches, how it binds a pod, and which replica leads.

It must not know HTTP servers. Invariant: only bind writes which cards a pod has.
"""
