"""Arithmetic of 32-bit floats as processors do it, a product and a sum rounded once, and functions built on it.

The logarithm, sine and cosine are bit-identical to those with which PyTorch draws normal numbers: Moshier's Cephes
polynomials, fused as on processors with AVX2.

Source: Moshier, Cephes, `single/logf.c` and `single/sinf.c`; PyTorch, `aten/src/ATen/native/cpu/avx_mathfun.h`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array

LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
       -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
QUARTER = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
"""A quarter of pi in three parts, each exact when multiplied by a small integer."""


def fused(left: Any, right: Any, added: Any) -> Array:
    """Return `left * right + added` in float32, rounded once, as a fused multiply-add.

    The product of two 24-bit numbers is exact in float64. Its sum with a third may not be; it is then rounded to an
    odd last bit, so that rounding it again, to float32, equals a single rounding.

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


def log(x: Array) -> Array:
    """Return the natural logarithm of positive float32 numbers, none of them subnormal.

    `x = 2^e (1 + z)` with `1 + z` from sqrt(1/2) to sqrt(2), and `ln x = e ln 2 + ln(1 + z)`.
    """
    one = np.float32(1)
    bits = x.view(np.uint32)
    exponent = ((bits >> np.uint32(23)).astype(np.int32) - 126).astype(np.float32)
    half = ((bits & np.uint32(0x007FFFFF)) | np.uint32(0x3F000000)).view(np.float32)
    small = half < np.float32(0.707106781186547524)
    z = (half - one) + np.where(small, half, np.float32(0))
    exponent = exponent - small.astype(np.float32)
    square = z * z
    tail = fused(polynomial(z, LOG) * z, square, exponent * np.float32(LN2_LOW))
    return fused(exponent, LN2_HIGH, z + fused(square, -0.5, tail))


def sine_and_cosine(x: Array) -> tuple[Array, Array]:
    """Return the sine and the cosine of float32 numbers from 0 to a few turns.

    The nearest even multiple of pi/4 is subtracted; the multiple selects the polynomial and its sign.
    """
    octant = ((x * np.float32(1.27323954473516)).astype(np.int32) + 1) & ~1
    rest = x
    for part in QUARTER:
        rest = fused(octant.astype(np.float32), part, rest)
    square = rest * rest
    even = fused(polynomial(square, COSINE) * square, square, -(square * np.float32(0.5))) + np.float32(1)
    odd = fused(polynomial(square, SINE) * square, rest, rest)
    turned = (octant & 2) != 0
    sine, cosine = np.where(turned, even, odd), np.where(turned, odd, even)
    return np.where((octant & 4) != 0, -sine, sine), np.where(((octant - 2) & 4) == 0, -cosine, cosine)
