"""A worksheet for a class: its boxes, numbers that show every common mistake, what each would give, and grading.

`paper` is what a student gets and what is right, `draw` makes numbers for each student, `foretold` says what each
mistake would give, `grading` judges answers. Arrays in, plain data out.
"""
