"""Which recipe gives this evidence: the answers of a function to questions, or the numbers that a person wrote.

`check` asks a function of somebody, `explain` reads numbers, and `grading` judges the sheets of a class. What may
explain the evidence stands in one ordered list, `EXPLANATIONS` in `explanations`; `candidates` are the mistakes and
settings that it tries, `answers` and `numbers` the two kinds of evidence. `paper` is a worksheet, what is right on it
and what each mistake would give there.

It has rooms, in the order in which they build on each other: `code`, `observe`, `asking`, `bind`, `locate`, `sheets`,
`recipes`, `calling`, `finding`, `explaining`, `judging`, `pairs` and `classroom`. No two files of them have the same
name. `command` and `in_child` stand beside them, and are how a command line comes in.
"""
