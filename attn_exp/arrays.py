"""Arrays: what they are called everywhere, and random ones, each from an independent stream of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of any type of numbers; what its axes are, names and docstrings say."""


def draw(
    seed: int, name: str, distribution: str, shape: tuple[int, ...], bounds: tuple[float, float] = (-1.0, 1.0)
) -> Array:
    """Draw an array from its own stream, so that no other array's presence or shape can change it.

    `normal` is N(0, 1), `uniform` is U(-1, 1), or between other bounds; `integers` are whole numbers from the lower
    bound up to the upper. The stream is `SeedSequence([seed, *name])`, the name as bytes.
    """
    stream = np.random.default_rng(np.random.SeedSequence([seed, *name.encode()]))
    if distribution == "normal":
        return stream.standard_normal(shape)
    if distribution == "integers":
        return stream.integers(int(bounds[0]), int(bounds[1]), shape)
    return stream.uniform(*bounds, shape)


def widen(array: Array) -> Array:
    """Return an array to sum: half precision as float32, any other as it is."""
    return array if array.dtype.itemsize > 2 else array.astype(np.float32)


def add_up(array: Array, axis: int = -1) -> Array:
    """Return the sums along an axis, which stays with length 1; half precision is summed in float32, rounded once."""
    return np.asarray(widen(array).sum(axis=axis, keepdims=True)).astype(array.dtype, copy=False)
