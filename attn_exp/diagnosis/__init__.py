"""Explain answers: what a function computed in test cases, or what a person computed on a worksheet.

`check` tests a user's function, `explain` explains numbers, and `grading` grades the worksheets of a class. `answers`
and `numbers` are the two kinds of evidence; each lists its explanations in order. `candidates` contains the mistakes
and settings to try, and `paper` a worksheet with its right numbers and those that each mistake would give.

Each package builds on those before it: `asking`, `bind`, `observe`, `recipes`, `calling`, `explaining`, `judging` and
`classroom`. File names are unique across them. `command` and `in_child` implement the command line.
"""
