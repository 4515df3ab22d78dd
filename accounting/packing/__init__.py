"""Placement that looks ahead: what a node's free part is worth to the pods that are still to come.

It must not know claims, names or the wire. Everything is in integers: hundredths of a card, thousandths of a CPU, and
`ONE` for the value of one card.
"""
