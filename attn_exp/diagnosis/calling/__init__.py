"""How a function or a layer is called: its arrays and layout, the format of its mask, and what its calls show.

May import from `recipes` and from the packages before it.
"""
