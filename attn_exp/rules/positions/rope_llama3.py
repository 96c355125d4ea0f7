"""Rotary positions with the scaling of Llama 3, which slows down only the pairs that rotate slowly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.kinds import PositiveFloat
from attn_exp.rules.example import Example
from attn_exp.rules.positions.rope import Rope


@dataclass(frozen=True)
class RopeLlama3(Rope):
    """Rotates feature pair i by `position * speed * (share + (1 - share) / stretch)`, with `speed = 1 / base^(2i / d)`.

    A pair makes `context * speed / (2 pi)` turns over the original training context. `share` is 1 for `high` turns or
    more, 0 for `low` turns or fewer, and linear in between. Everything else is as in `position=rope`.

    Source: The Llama 3 Herd of Models, section 3.4.3 on long contexts, with the constants of Meta's own code for 3.1.
    """

    stretch: PositiveFloat = 8.0
    low: PositiveFloat = 1.0
    high: PositiveFloat = 4.0
    context: PositiveFloat = 8192.0

    def misfit(self, size: int) -> str | None:
        if self.low >= self.high:
            return f"rope_llama3 has low={self.low:g} and high={self.high:g}; expected low below high"
        return super().misfit(size)

    def angles(self, positions: Array, size: int) -> Array:
        speeds = self.base ** -(np.arange(0, size, 2) / size)
        share = np.clip((self.context * speeds / (2 * np.pi) - self.low) / (self.high - self.low), 0, 1)
        return positions[:, None] * (speeds * (share + (1 - share) / self.stretch))

    def angle(self, position: int, pair: int, size: int) -> float:
        """Return the angle of one pair, computed from its wavelength, the number of tokens per turn."""
        wavelength = 2 * math.pi * math.pow(self.base, 2 * pair / size)
        longest, shortest = self.context / self.low, self.context / self.high
        slow = wavelength * self.stretch
        if wavelength > longest:
            return 2 * math.pi * position / slow
        if wavelength < shortest:
            return 2 * math.pi * position / wavelength
        share = (self.context / wavelength - self.low) / (self.high - self.low)
        return 2 * math.pi * position * (share / wavelength + (1 - share) / slow)


START = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
TURNED = (
    0.540302305868140,  # the cosine of 1: 100 / (2 pi) turns, more than 4
    0.999557396526493,  # the cosine of 0.0297535250685: 1.59 turns, so a share of 0.197
    0.999999218750102,  # the cosine of 0.01 / 8: less than one turn
    0.841470984807897,  # the sines of the same three angles
    0.029749135267749,
    0.001249999674479,
)

EXAMPLE = Example(
    settings={"base": 1000.0, "context": 100.0},
    given=(START, START),
    outcome=(START, TURNED),
    keys=(START, START),
    keys_after=(START, TURNED),
    outside=Example(
        settings={"base": 1000.0, "context": 100.0},
        given=((0.0, 0.0, 0.0, 1.0, 1.0, 1.0),) * 2,
        outcome=(
            (0.0, 0.0, 0.0, 1.0, 1.0, 1.0),
            (-0.841471, -0.029749, -0.001250, 0.540302, 0.999557, 0.999999),
        ),
        decimals=6,
        source="transformers 5.23, whose `llama3` gives the speeds 1, 0.0297535192 and 0.0012499999 in float32",
    ),
)
