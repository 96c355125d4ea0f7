"""Which recipe gives this evidence: the answers of a function to questions, or the numbers that a person wrote.

`check` asks a function of somebody and `explain` reads numbers; both say whether these are right, and name the mistake
where they are not. `paper` is a worksheet for a class and what is right on it, `draw` makes numbers for each student,
`foretold` says what each mistake would give there, and `grading` judges what was filled in.
"""
