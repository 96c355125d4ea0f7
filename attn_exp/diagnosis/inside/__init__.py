"""What happens inside a call: the attention among its operations, and what is wrong with it there.

May import from `calling` and all rooms above that.
"""
