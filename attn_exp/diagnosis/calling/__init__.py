"""How a function or a layer is called: which argument is which, and the values of all others.

May import from `matrices` and all rooms above that.
"""
