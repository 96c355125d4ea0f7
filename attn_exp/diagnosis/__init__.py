"""Explain answers: what a function computed in test cases, or what a person computed on a worksheet.

`check` tests a user's function, `explain` explains numbers, and `grading` grades the worksheets of a class. `answers`
and `numbers`, the two kinds of evidence, each list their explanations in order; `candidates` are the mistakes and
settings that these try. `paper` is a worksheet, its right numbers, and what each mistake would give.

Its packages, each built on those before it: `asking`, `bind`, `observe`, `recipes`, `calling`, `explaining`, `judging`
and `classroom`. No two of their files have the same name.
`command` and `in_child`, next to these packages, serve the command line.
"""
