"""Access to the API server: client, lists and watches, paths, events, reviews.

It must not know cards. Invariant: only `connection` imports kubernetes_asyncio.
"""
