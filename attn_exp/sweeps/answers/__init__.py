"""What a sweep answers: what each setting does to each metric, compared seed by seed, in numbers and in sentences.

`cube` puts the rows of a sweep into arrays, `effects` compares them in pairs, `variance` shares out what varies,
`sentences` says what was found. Arrays in, plain data out: nothing here reads a file or draws.
"""
