"""What a sweep answers: what each setting does to each metric, compared seed by seed, in numbers and in sentences.

`totals` streams the parts into a few numbers, `cube` puts the rows into arrays, `effects` compares them in pairs and
shares out what varies, `sentences` says what was found, and `answers` holds all of it, with its tables. Arrays in,
plain data out: nothing here reads a file or draws.
"""
