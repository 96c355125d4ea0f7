"""Attention functions of many hands, right and wrong: what a checker of attention is measured with.

Nothing here imports the project: each function is written for itself, as people write it in notebooks and models.
`cases.py` lists the wrong ones, `right.py` the right ones, `cheats.py` those that only look right.
"""
