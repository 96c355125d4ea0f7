"""Test cases for a function, and what its parameter names and code say that it takes.

May import from `code` and all rooms above that.
"""
