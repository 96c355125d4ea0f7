"""Attempts to make the program fall: a field of them to a file, each with `attempt(seed)`."""
