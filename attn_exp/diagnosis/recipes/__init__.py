"""Candidate explanations of wrong answers: mistakes, one or several, with fitted numbers, and settings.

May import from `observe` and from the packages before it.
"""
