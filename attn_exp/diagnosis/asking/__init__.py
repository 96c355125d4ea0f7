"""Test cases for a function, what its names and code say that it takes, and the arrays of its library.

Imports from no other package of diagnosis.
"""
