"""Find out by trying how a function of any signature is called, and how it wants its mask.

May import from `reading` and all rooms above that.
"""
