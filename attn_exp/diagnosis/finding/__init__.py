"""Finds by trying how a function of anybody's signature is called, and how it wants its mask.

May import from `reading` and all rooms above that.
"""
