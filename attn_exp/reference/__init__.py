"""The reference: attention computed again, in scalar loops, derived independently of the forms.

`loops` holds the formulas, in plain Python floats and `math`; dot products are computed on arrays, with exact sums,
bit-identical to `math.fsum`. `oracle` runs a problem through them, from x to the output, for as many evenly spaced
queries as a budget allows; the column `checked` gives their number. Each position and normalizer provides a scalar
version of itself, its `twin`; if one has none, the row says that nothing was checked.
"""
