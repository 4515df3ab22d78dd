"""Admission: checking and completing a pod before the API server stores it.

The decisions are pure functions of a request, the settings and the cluster as it is now; `service` and `http` handle
the bytes. Invariant: answering changes only counters, whether or not the request is a dry run.
"""
