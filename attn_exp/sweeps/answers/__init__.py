"""Analyse a sweep: the effect of each setting on each metric, as one table.

`totals` streams the parts into summary statistics and `cube` puts the rows into arrays. `effects` compares them in
pairs, seed by seed, and tests them with `student`; `cautions` notes what else a setting changes. `phrases` formats an
effect as a sentence, `digits` its numbers, and `answers` the tables. Arrays in, plain data out: nothing here reads a
file or draws.
"""
