"""Layers of each library, from their class to their matrices: what one holds, never uses, or has around attention.

May import from `making` and all rooms above that.
"""
