"""Test cases for a function, the inputs that its names and code announce, and the arrays of its library.

Imports nothing from the other packages of diagnosis.
"""
