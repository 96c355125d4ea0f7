"""Arithmetic of 32-bit floats as a processor does it: a product and a sum, rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array


def fused(left: Any, right: Any, added: Any) -> Array:
    """Return `left * right + added` in float32, rounded once, as a fused multiply-add does it.

    The product of two 24-bit numbers is exact in float64. Their sum with a third may not be; it is then rounded to an
    odd last bit, so that rounding it once more, to float32, gives what a single rounding would have given.

    Source: Boldo and Melquiond 2008, "Emulation of FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding
    to Odd", theorem 1.
    """
    left, right, added = (np.asarray(side, np.float32).astype(np.float64) for side in (left, right, added))
    product = left * right
    total = np.asarray(product + added)
    swapped = total - product
    error = (product - (total - swapped)) + (added - swapped)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    odd = np.nextafter(total, np.copysign(np.inf, error))
    return np.asarray(np.where((error != 0) & even, odd, total).astype(np.float32))


def polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Return `(...(c0 x + c1) x + ...) x + cn`, each step fused."""
    total: Array = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = fused(total, x, coefficient)
    return total
