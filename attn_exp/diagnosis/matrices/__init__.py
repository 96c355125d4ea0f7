"""What a layer holds, whichever library it is of: its sizes, its parameters, and which of them is which matrix.

May import from `recipes` and all rooms above that.
"""
