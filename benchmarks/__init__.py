"""Measurements of the extender, and the synthetic clusters that they run on; nothing here is imported by it."""
