"""Candidate explanations: a mistake or a setting, several at once, with a fitted number, or under a condition.

May import from `observe` and from the packages before it.
"""
