"""Bind a function by the names in its signature, and find its layout and the format of its mask by calling it.

May import from `calling` and from the packages before it.
"""
