"""Wire formats: only the fields that are read, null-tolerant, decoded by msgspec.

It must not know rules. Invariant: decoding skips fields that are not read, so a 9 KB pod costs microseconds.
"""
