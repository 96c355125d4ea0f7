"""How a function or a layer is called: which argument is which, and what all the others are given.

May import from `matrices` and all rooms above that.
"""
