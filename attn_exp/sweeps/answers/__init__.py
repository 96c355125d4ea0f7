"""What a sweep answers: the effect of each setting on each metric, as one table.

`totals` streams the parts into a few numbers and `cube` puts the rows into arrays. `effects` compares them in pairs,
seed by seed, and judges what it finds by `student`; `cautions` says what else a setting changes. `phrases` has the one
sentence that tells an effect, `digits` its numbers, and `answers` the tables. Arrays in, plain data out: nothing here
reads a file or draws.
"""
