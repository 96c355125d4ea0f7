"""The reference: attention once more, with scalar loops, derived independently of the forms.

`loops` holds the formulas, in Python floats and `math` alone; products of vectors are computed in arrays, whose sums
are exact: to the bit those of `math.fsum`. `oracle` runs a problem through them, from x to the output, for as many
evenly spaced queries as a budget allows; the column `checked` says how many. Positions and normalizers bring a scalar
twin of their own; where one has none, the row says that nothing was checked.
"""
