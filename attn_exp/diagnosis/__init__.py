"""Which recipe gives this evidence: the answers of a function to questions, or the numbers that a person wrote.

`check` asks a function of somebody, `explain` reads numbers, and `grading` judges the sheets of a class. What may
explain the evidence stands in one ordered list, `EXPLANATIONS` in `explanations`; `candidates` are the mistakes and
settings that it tries, `answers` and `numbers` the two kinds of evidence. `paper` is a worksheet and what is right on
it, `foretold` what each mistake would give there.

It has rooms. From top to bottom they are `code`, `asking`, `sheets`, `recipes`, `matrices`, `calling`, `inside`,
`making`, `reading`, `finding`, `explaining`, `judging`, `pairs` and `classroom`. Each imports only from those above
it, and says in its first line what it is for; no two files of them have the same name. `command`, `in_child` and
`whole_file` stand beside them, and are how a command line comes in.
"""
