"""The slow references: the same rules in plain Python, to compare the fast code with.

They import plain values only, and only tests and benchmarks import them.
"""
