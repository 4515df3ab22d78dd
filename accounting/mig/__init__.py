"""Placing a pod on nodes whose cards are in MIG mode.

It is a search on plain numbers, because no sum over a card says which of its slices are free.
"""

from accounting.mig.fit import Searched, place_on_columns, place_on_one

__all__ = ["Searched", "place_on_columns", "place_on_one"]
