"""Makes an object of a class that nobody knows: what its constructor is given, by names, notes and code, and by trying.

May import from `inside` and all rooms above that.
"""
