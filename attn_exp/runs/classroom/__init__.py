"""A class on disk: sheets to hand out, answers to read, keys to grade them with.

`answers` is the form of `answers.csv`, `key` that of a key, `hand_out` writes sheets, `hand_in` grades what comes back.
"""
