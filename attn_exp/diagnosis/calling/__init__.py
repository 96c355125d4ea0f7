"""How a function or a layer is called: which argument is which, and the values of all others.

May import from `recipes` and from the packages before it.
"""
