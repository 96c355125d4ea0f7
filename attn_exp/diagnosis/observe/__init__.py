"""Record the operations of a call, and find attention among them.

`trace` defines what a recorder returns, and tracks where numbers move; there is one recorder per library. `recording`
runs a layer with changed tokens, `cores` finds q, k, v, weights and context, and `matrices` reads the projections and
the norms and residuals around them.
"""
