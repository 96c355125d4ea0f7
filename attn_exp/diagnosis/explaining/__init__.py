"""Explain wrong answers or worksheet numbers; where nothing explains them, locate the first stage that differs.

May import from `finding` and from the packages before it.
"""
