"""Placement that looks ahead: what a node's free part is worth to the pods that are expected.

It must not know claims, names or the wire. All values are integers: hundredths of a card, thousandths of a CPU, and
`ONE` for the value of one card.
"""
