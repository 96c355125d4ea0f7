"""Test cases for a function, the inputs that its names and code suggest, and conversion to its array library.

Imports nothing from the other packages of diagnosis.
"""
