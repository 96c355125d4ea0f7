"""Judge a function or a layer: run the cases, explain the answers, and list what was not verified; compare two.

May import from `explaining` and from the packages before it.
"""
