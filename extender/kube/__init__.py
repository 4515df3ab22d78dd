"""The live API server: client, reflector, bind, leader election, events.

It must not know cards. Invariant: only `connection` imports kubernetes_asyncio.
"""
