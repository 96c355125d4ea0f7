"""Find attention among the operations of a call: its products, their axes, and the weight matrices.

`recording` runs a layer with changed tokens, `products` brings products into standard axes and tracks where numbers
move, `cores` finds q, k, v, weights and context, `matrices` reads the projections, and `surroundings` the norms and
residuals around them.
"""
