"""A class on disk: sheets to hand out, answers to read, and keys to grade them with.

`answers` reads and writes `answers.csv`; `sheets` writes sheets and their keys, `grades` grades the answers, and
`exercise` is a sheet in a notebook.
"""
