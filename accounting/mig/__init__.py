"""Placing a pod on nodes whose cards are in MIG mode.

A search on plain numbers, because instances lie on slices that no sum over a card describes.
"""

from accounting.mig.fit import Searched, place_on_columns, place_on_one

__all__ = ["Searched", "place_on_columns", "place_on_one"]
