"""Measurements of the extender, and the synthetic clusters that they run on; the extender imports nothing from here."""
