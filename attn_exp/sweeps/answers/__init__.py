"""What a sweep answers: what each setting does to each metric, compared seed by seed, in numbers and in sentences.

`totals` streams the parts into a few numbers, `cube` puts the rows into arrays, `effects` compares them in pairs and
shares out what varies. `intervals` says how sure a mean is and holds all comparisons as one family; `profiles` are what
is compared, `shapes` how a metric goes along a setting; a `finding` is what of it is sure, as data and in words, which
`phrases` has: `findings` makes them, and `interactions` those that depend on other settings. `sentences` puts them in
order, and `missing` says what could not be compared. `answers` holds all of it, with its tables. Arrays in,
plain data out: nothing here reads a file or draws.
"""
