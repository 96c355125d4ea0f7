"""PyTorch's generator on a CPU: `torch.manual_seed(seed)`, then `torch.rand`, `randn`, `randint` and the like.

Every bit equals PyTorch's on CPUs with AVX2, such as those of Intel and AMD from the last ten years. On other CPUs
there are two differences. PyTorch uses the system's logarithm, sine and cosine, so arrays of 16 or more normal numbers
differ by at most 3e-6 times their spread. It rounds uniform numbers twice unless their bounds are 0 and 1, so their
last bit may differ.

Float32 arithmetic follows the processor: a fused multiply-add is rounded once, and the logarithm, sine and
cosine are Moshier's Cephes polynomials.

Source: PyTorch, `aten/src/ATen/core/MT19937RNGEngine.h`, `core/DistributionsHelper.h`,
`native/cpu/DistributionTemplates.h`, `native/cpu/avx_mathfun.h`; Moshier, Cephes, `single/logf.c` and `single/sinf.c`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.problem.generators.generator import Generator, Start

BLOCK = 16
"""PyTorch draws normal numbers in blocks of this many; fewer than that are drawn in pairs."""


class Torch:
    """A Mersenne Twister of 32-bit words, seeded with the low 32 bits of the seed; all numbers are float32."""

    def __init__(self, start: Start) -> None:
        self.state = np.random.RandomState(start.seed & 0xFFFFFFFF)
        self.spare_sine: float | None = None

    def draw_words(self, count: int) -> Array:
        return self.state.randint(0, 2**32, count, dtype=np.uint32)

    def draw_long_words(self, count: int) -> Array:
        """Return the next 64-bit words, each made of two 32-bit words, the higher half first."""
        words = self.draw_words(2 * count).astype(np.uint64)
        return words[0::2] << np.uint64(32) | words[1::2]

    def draw_fractions(self, count: int) -> Array:
        """Return float32 numbers in `[0, 1)`, each made from 24 bits of a 32-bit word."""
        return (self.draw_words(count) & np.uint32(2**24 - 1)).astype(np.float32) * np.float32(2**-24)

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0) -> Array:
        """Draw as `torch.rand(shape)` or `tensor.uniform_(low, high)` does; a number that rounds to `high` is `low`."""
        least, most = np.float32(low), np.float32(high)
        numbers = multiply_add(self.draw_fractions(math.prod(shape)), most - least, least)
        return np.where(numbers == most, least, numbers).reshape(shape)

    def normal(self, shape: Shape, mean: float = 0.0, spread: float = 1.0) -> Array:
        """Draw as `torch.randn(shape)` or `torch.normal(mean, spread, shape)` does."""
        count = math.prod(shape)
        if count < BLOCK:
            numbers = [self.draw_normal() * spread + mean for _ in range(count)]
            return np.array(numbers, np.float64).astype(np.float32).reshape(shape)
        fractions = self.draw_fractions(count)
        whole = count - count % BLOCK
        out = np.empty(count, np.float32)
        out[:whole] = make_normal_blocks(fractions[:whole], mean, spread)
        if whole < count:  # the last 16 numbers are drawn again as one block
            out[count - BLOCK :] = make_normal_blocks(self.draw_fractions(BLOCK), mean, spread)
        return out.reshape(shape)

    def draw_normal(self) -> float:
        """Return one normal number; a Box-Muller pair gives its cosine first, and its sine in the next call."""
        if self.spare_sine is not None:
            number, self.spare_sine = self.spare_sine, None
            return number
        turn, share = ((self.draw_long_words(2) & np.uint64(2**53 - 1)) * 2.0**-53).tolist()
        radius, angle = math.sqrt(-2.0 * math.log1p(-share)), 2.0 * math.pi * turn
        self.spare_sine = radius * math.sin(angle)
        return radius * math.cos(angle)

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        """Draw as `torch.randint(low, high, shape)` does in PyTorch 2.7 and later.

        Each number is a 32-bit word modulo the span; spans of 2^28 and more (2^32 before 2.7) use a 64-bit word.
        """
        span, count = high - low, math.prod(shape)
        words = self.draw_words(count).astype(np.uint64) if span < 2**28 else self.draw_long_words(count)
        return ((words % np.uint64(span)).view(np.int64) + low).reshape(shape)


def make_normal_blocks(fractions: Array, mean: float, spread: float) -> Array:
    """Turn blocks of 16 fractions into normal numbers: the first 8 give the radii, the others the angles."""
    shares, turns = np.split(fractions.reshape(-1, BLOCK), 2, axis=1)
    radius = np.sqrt(np.float32(-2) * log(np.float32(1) - shares))
    sine, cosine = sine_and_cosine(np.float32(2 * math.pi) * turns)
    return multiply_add(np.concatenate([radius * cosine, radius * sine], axis=1), spread, mean).reshape(-1)


LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
       -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
QUARTER = (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8)
"""A quarter of pi in three parts, each exact when multiplied by a small integer."""


def multiply_add(left: Any, right: Any, added: Any) -> Array:
    """Return `left * right + added` in float32, rounded once, as a fused multiply-add.

    The product of two 24-bit numbers is exact in float64, but its sum with a third number may not be. That sum is
    rounded to an odd last bit. Rounding it again, to float32, then gives the same as a single rounding.

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
    return np.where((error != 0) & even, odd, total).astype(np.float32)


def polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Return `(...(c0 x + c1) x + ...) x + cn`, with a fused multiply-add in each step."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = multiply_add(total, x, coefficient)
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
    tail = multiply_add(polynomial(z, LOG) * z, square, exponent * np.float32(LN2_LOW))
    return multiply_add(exponent, LN2_HIGH, z + multiply_add(square, -0.5, tail))


def sine_and_cosine(x: Array) -> tuple[Array, Array]:
    """Return the sine and the cosine of float32 numbers from 0 to a few turns.

    The nearest even multiple of pi/4 is subtracted; the multiple selects the polynomial and its sign.
    """
    octant = ((x * np.float32(1.27323954473516)).astype(np.int32) + 1) & ~1
    rest = x
    for part in QUARTER:
        rest = multiply_add(octant.astype(np.float32), part, rest)
    square = rest * rest
    even = multiply_add(polynomial(square, COSINE) * square, square, -(square * np.float32(0.5))) + np.float32(1)
    odd = multiply_add(polynomial(square, SINE) * square, rest, rest)
    is_swapped = (octant & 2) != 0
    sine, cosine = np.where(is_swapped, even, odd), np.where(is_swapped, odd, even)
    return np.where((octant & 4) != 0, -sine, sine), np.where(((octant - 2) & 4) == 0, -cosine, cosine)


GENERATORS = {"torch": Generator(Torch, least=-(2**63), most=2**64 - 1)}
