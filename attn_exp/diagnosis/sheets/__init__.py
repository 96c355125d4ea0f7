"""Numbers from a person: the boxes of a worksheet, alternative notations of right numbers, and slips.

May import from `locate` and from the packages before it.
"""
