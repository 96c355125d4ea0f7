"""Test cases for a function, and what its parameter names and code say that it takes.

May import from `observe` and from the packages before it.
"""
