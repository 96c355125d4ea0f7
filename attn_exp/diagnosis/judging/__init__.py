"""The verdict on a function: in which order cases are run, how answers are reported, and what could not be checked.

May import from `explaining` and from the packages before it.
"""
