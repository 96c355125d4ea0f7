"""What is asked of a function, and what its names and its code say that it takes: cases, questions, layouts, words.

May import from `code` and all rooms above that.
"""
