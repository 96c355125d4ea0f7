"""A class on disk: sheets to hand out, answers to read, keys to grade them with.

`answers` is the form of `answers.csv`; `sheets` writes sheets and their keys, `grades` grades what comes back, and
`exercise` is a sheet in a notebook.
"""
