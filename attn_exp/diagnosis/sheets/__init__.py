"""Numbers from a person: the boxes of a worksheet, alternative notations of right numbers, and slips.

May import from `asking` and all rooms above that.
"""
