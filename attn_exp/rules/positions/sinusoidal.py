"""Sinusoids of growing wavelength, added to x."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from attn_exp.config.kinds import above
from attn_exp.rules.positions.position import Array, Position


@dataclass(frozen=True)
class Sinusoidal(Position):
    """`x_(t, 2i) += sin(t / base^(2i / m))` and `x_(t, 2i+1) += cos(t / base^(2i / m))`.

    Sines and cosines alternate, as in the paper; TensorFlow's tutorial puts all sines first.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """

    base: Annotated[float, above(0)] = 10000.0

    changes_x = True

    def embed(self, x: Array) -> Array:
        length, width = x.shape
        column = np.arange(width)
        angles = np.arange(length)[:, None] / self.base ** (column // 2 * 2 / width)
        return np.asarray(x + np.where(column % 2, np.cos(angles), np.sin(angles)).astype(x.dtype))
