"""Explain and grade a person's numbers: the boxes of a worksheet, its questions, and named slips and mistakes.

May import from `judging` and from the packages before it.
"""
