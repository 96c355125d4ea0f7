"""User code: its source, the arrays of its libraries, and the operations that a call runs.

Imports from no other package of diagnosis.
"""
