"""PyTorch's generator on a CPU: `torch.manual_seed(seed)`, then `torch.rand`, `randn`, `randint` and the like.

Every bit equals PyTorch's on CPUs with AVX2, such as Intel's and AMD's of the last ten years. Elsewhere PyTorch uses
the system's logarithm, sine and cosine, and 16 or more normal numbers differ by at most 3e-6 times their spread; it
also rounds uniform numbers with other bounds than 0 and 1 twice, so that their last bit may differ. Everything else
agrees.

Source: PyTorch, `aten/src/ATen/core/MT19937RNGEngine.h`, `core/DistributionsHelper.h`,
`native/cpu/DistributionTemplates.h`.
"""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array
from attn_exp.problem.generators._float32 import fused, log, sine_and_cosine
from attn_exp.problem.generators.generator import Generator, Shape, Start

BLOCK = 16
"""The number of normal numbers made at once; fewer are made two at a time."""


class Torch:
    """A Mersenne Twister of 32-bit words, seeded with the low 32 bits of the seed; all numbers are float32."""

    def __init__(self, start: Start) -> None:
        self.state = np.random.RandomState(start.seed & 0xFFFFFFFF)
        self.kept: float | None = None

    def words(self, count: int) -> Array:
        return self.state.randint(0, 2**32, count, dtype=np.uint32)

    def long_words(self, count: int) -> Array:
        """Return the next 64-bit words; the first of two words is the higher half."""
        words = self.words(2 * count).astype(np.uint64)
        return words[0::2] << np.uint64(32) | words[1::2]

    def fractions(self, count: int) -> Array:
        """Return float32 in `[0, 1)`, from 24 bits of a word each."""
        return (self.words(count) & np.uint32(2**24 - 1)).astype(np.float32) * np.float32(2**-24)

    def long_fractions(self, count: int) -> Array:
        """Return float64 in `[0, 1)`, from 53 bits of a word each."""
        return (self.long_words(count) & np.uint64(2**53 - 1)).astype(np.float64) * 2.0**-53

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0) -> Array:
        """`torch.rand(shape)`, `tensor.uniform_(low, high)`: a number rounded up to `high` becomes `low`."""
        least, most = np.float32(low), np.float32(high)
        numbers = fused(self.fractions(math.prod(shape)), most - least, least)
        return np.where(numbers == most, least, numbers).reshape(shape)

    def normal(self, shape: Shape, mean: float = 0.0, spread: float = 1.0) -> Array:
        """`torch.randn(shape)`, `torch.normal(mean, spread, shape)`."""
        count = math.prod(shape)
        if count < BLOCK:
            numbers = [self.single() * spread + mean for _ in range(count)]
            return np.array(numbers, np.float64).astype(np.float32).reshape(shape)
        fractions = self.fractions(count)
        whole = count - count % BLOCK
        out = np.empty(count, np.float32)
        out[:whole] = normal_blocks(fractions[:whole], mean, spread)
        if whole < count:  # the last 16 numbers are drawn again as one block
            out[count - BLOCK :] = normal_blocks(self.fractions(BLOCK), mean, spread)
        return out.reshape(shape)

    def single(self) -> float:
        """Return one normal number: the cosine of a Box-Muller pair, or the sine left over from the last pair.

        The sine is kept, however long, for the next call of this kind.
        """
        if self.kept is not None:
            number, self.kept = self.kept, None
            return number
        turn, share = self.long_fractions(2).tolist()
        radius, angle = math.sqrt(-2.0 * math.log1p(-share)), 2.0 * math.pi * turn
        self.kept = radius * math.sin(angle)
        return radius * math.cos(angle)

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        """`torch.randint(low, high, shape)`, as since PyTorch 2.7.

        A word modulo the span; for spans of 2^28 and more, a 64-bit word (before 2.7 for 2^32 and more).
        """
        span, count = high - low, math.prod(shape)
        words = self.words(count).astype(np.uint64) if span < 2**28 else self.long_words(count)
        return ((words % np.uint64(span)).view(np.int64) + low).reshape(shape)


def normal_blocks(fractions: Array, mean: float, spread: float) -> Array:
    """Turn blocks of 16 fractions into normal numbers: the first 8 give the radii, the others the angles."""
    shares, turns = np.split(fractions.reshape(-1, BLOCK), 2, axis=1)
    radius = np.sqrt(np.float32(-2) * log(np.float32(1) - shares))
    sine, cosine = sine_and_cosine(np.float32(2 * math.pi) * turns)
    return fused(np.concatenate([radius * cosine, radius * sine], axis=1), spread, mean).reshape(-1)


GENERATOR = Generator(Torch, least=-(2**63), most=2**64 - 1)
