"""Grade a person's numbers: a worksheet's questions, the result of each mistake, and named slips and mistakes.

May import from `pairs` and from the packages before it.
"""
