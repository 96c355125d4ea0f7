"""Explain wrong answers or worksheet numbers; if no explanation fits, locate the first stage that differs.

May import from `calling` and from the packages before it.
"""
