"""Candidate explanations: a mistake or a setting, several at once, with a fitted number, or under a condition.

May import from `sheets` and from the packages before it.
"""
