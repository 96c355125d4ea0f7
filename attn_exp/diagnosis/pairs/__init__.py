"""Compare two implementations: where they agree, where they first differ, and why.

May import from `judging` and from the packages before it.
"""
