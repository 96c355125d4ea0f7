"""Two implementations beside each other: where they agree, where they part first, and what parts them.

May import from `judging` and all rooms above that.
"""
