"""How a function or a layer is called: its arrays and layout, its mask format, and what repeated calls reveal.

May import from `recipes` and from the packages before it.
"""
