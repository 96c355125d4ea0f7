"""The attention among the operations of a call: which products it is, in which axes, and with which matrices.

`recording` runs a layer with changed tokens, `products` brings products into standard axes, `follow` tracks where
numbers move, `cores` finds q, k, v, weights and context, `matrices` reads the projections, and `surroundings` the norms
and residuals around them.
"""
