"""The oracle: attention once more, with scalar loops, derived apart from the forms.

`loops` holds the formulas over Python floats and `math` alone. `oracle` puts a problem through them, from x to the
output, for as many evenly spaced queries as a budget allows; the column `checked` says how many. Positions and
normalizers bring a scalar twin of their own; where one has none, the row says that nothing was checked. `stack` answers
for all seeds of a sweep at once, in arrays with exact sums, to the bit as the loops, and these hold one problem of each
stack.
"""
