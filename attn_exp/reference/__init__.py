"""The reference: attention computed again, in scalar loops, derived independently of the forms.

`loops` contains the formulas, in plain Python floats and `math`. `oracle` computes a problem with them, from x to the
output, for as many evenly spaced queries as a budget allows; the column `checked` gives their number. Dot products are
computed on arrays, with sums bit-identical to `math.fsum`. Each position and normalizer provides a scalar version of
itself, its `twin`; if one has none, the report says that nothing was checked.
"""
