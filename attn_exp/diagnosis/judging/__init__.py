"""The verdict on a function: in which order it is asked, what is said of its answers, and what could not be asked.

May import from `explaining` and all rooms above that.
"""
