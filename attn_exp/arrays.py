"""The array type used everywhere, and random arrays, each drawn from its own independent stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of any dtype; names and docstrings state its axes."""
Arrays = Mapping[str, Array]
Shape = tuple[int, ...]


def bfloat16() -> Any:
    """Return the dtype bfloat16, which NumPy lacks; its package is imported on demand, because few runs need it."""
    import ml_dtypes  # noqa: PLC0415

    return np.dtype(ml_dtypes.bfloat16)


def draw(
    seed: int, name: str, distribution: str, shape: tuple[int, ...], bounds: tuple[float, float] = (-1.0, 1.0)
) -> Array:
    """Draw an array from its own stream, so that adding or reshaping another array cannot change it.

    - `normal`: N(0, 1).
    - `uniform`: between the bounds, U(-1, 1) by default.
    - `integers`: from the lower bound up to, but not including, the upper bound.

    The stream is `SeedSequence([seed, *name])`, with the name as bytes.
    """
    words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(1, seed.bit_length()), 32)]
    entropy = np.array([*words, *name.encode()], np.uint32)  # a list of integers would give the same, more slowly
    stream = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    if distribution == "normal":
        return stream.standard_normal(shape)
    if distribution == "integers":
        return stream.integers(int(bounds[0]), int(bounds[1]), shape)
    return stream.uniform(*bounds, shape)


def widen(array: Array) -> Array:
    """Convert a half-precision array to float32 for summing; return any other array unchanged."""
    return array if array.dtype.itemsize > 2 else array.astype(np.float32)


def add_up(array: Array, axis: int = -1) -> Array:
    """Sum along an axis, keeping it with length 1; half precision is summed in float32 and rounded once."""
    return np.asarray(widen(array).sum(axis=axis, keepdims=True)).astype(array.dtype, copy=False)
