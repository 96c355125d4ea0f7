"""Explain wrong answers or worksheet numbers; if nothing does, locate the first stage that differs.

May import from `calling` and from the packages before it.
"""
