"""Judge functions and layers: run cases, explain the answers, list what was not verified, and compare two functions.

May import from `explaining` and from the packages before it.
"""
