"""The page: the files that the browser needs, and the feed of changes.

It must not judge; it shows what reports say. Invariant: nothing that it serves refers to another host.
"""

from extender.server.page.feed import Feed
from extender.server.page.handlers import Page

__all__ = ["Feed", "Page"]
