"""Replaying a workload on a cluster, with the extender's own cache, fit, scores and cards."""
