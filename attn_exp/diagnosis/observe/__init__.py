"""Record the operations of one call in the library in which it is written.

`trace` defines what a recorder returns; there is one recorder per library.
"""
