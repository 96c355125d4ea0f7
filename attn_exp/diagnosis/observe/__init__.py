"""The operations of one call, recorded in the library in which it is written.

`trace` is what a recorder returns; there is one recorder per library.
"""
