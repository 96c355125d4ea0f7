"""Sinusoids of increasing wavelength, added to x."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.kinds import PositiveFloat
from attn_exp.rules.example import Example
from attn_exp.rules.positions.position import Position, Twin, Vector


@dataclass(frozen=True)
class Sinusoidal(Position):
    """`x_(t, 2i) += sin(t / base^(2i / m))` and `x_(t, 2i+1) += cos(t / base^(2i / m))`.

    Sines and cosines alternate, as in the paper; TensorFlow's tutorial puts all sines first.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """

    base: PositiveFloat = 10000.0

    changes_x = True

    def embed(self, x: Array) -> Array:
        length, width = x.shape
        column = np.arange(width)
        angles = np.arange(length)[:, None] / self.base ** (column // 2 * 2 / width)
        return np.asarray(x + np.where(column % 2, np.cos(angles), np.sin(angles)).astype(x.dtype))

    def twin(self) -> Twin:
        return Twin(embed=self.embed_vector)

    def embed_vector(self, numbers: Vector, position: int) -> list[float]:
        """Return a row of x with `sin(p w_i)` added in column 2i and `cos(p w_i)` in 2i+1, `w_i = base^(-2i / m)`."""
        result = []
        for column, number in enumerate(numbers):
            angle = position * math.pow(self.base, -(column - column % 2) / len(numbers))
            result.append(number + (math.cos(angle) if column % 2 else math.sin(angle)))
        return result


EXAMPLE = Example(
    settings={"base": 4.0},
    given=((5.0, 0.0, 0.0, 0.0), (5.0, 0.0, 0.0, 0.0)),
    outcome=(
        (5.0, 1.0, 0.0, 1.0),
        (5.841470984807897, 0.540302305868140, 0.479425538604203, 0.877582561890373),  # of 1, and of 1/2
    ),
    outside=Example(
        settings={"base": 100.0},
        given=((0.0, 0.0, 0.0, 0.0),) * 4,
        outcome=(
            (0.0, 1.0, 0.0, 1.0),
            (0.84147098, 0.54030231, 0.09983342, 0.99500417),
            (0.90929743, -0.41614684, 0.19866933, 0.98006658),
            (0.14112001, -0.9899925, 0.29552021, 0.95533649),
        ),
        decimals=7,
        source="Saeed 2022, 'A Gentle Introduction to Positional Encoding in Transformer Models': n = 100, d = 4",
    ),
)
