"""Code of others: as it is written, the arrays of its libraries, and the operations that a call of it does.

Imports from no other room of diagnosis.
"""
