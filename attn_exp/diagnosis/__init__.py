"""Explain evidence: a function's answers to test cases, or numbers that a person wrote.

`check` tests a user's function, `explain` reads numbers, and `grading` grades the worksheets of a class. The possible
explanations are an ordered list in `answers` and in `numbers`, the two kinds of evidence; `candidates` are the mistakes
and settings that they try. `paper` is a worksheet, its right numbers, and what each mistake would give.

Its packages, each built on those before it: `asking`, `bind`, `observe`, `recipes`, `calling`, `explaining`, `judging`
and `classroom`. No two of their files have the same name.
`command` and `in_child` stand beside them and serve the command line.
"""
