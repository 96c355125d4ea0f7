"""Numbers that a person wrote: the boxes of a worksheet, the ways to write right numbers down, and slips.

May import from `asking` and all rooms above that.
"""
