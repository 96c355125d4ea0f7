"""Random numbers: one independent stream per named array, and the legacy stream that documents draw from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def draw(seed: int, name: str, distribution: str, shape: tuple[int, ...]) -> Array:
    """Draw an array from its own stream, so that no other array's presence or shape can change it.

    `normal` is N(0, 1), `uniform` is U(-1, 1). The stream is `SeedSequence([seed, *name])`, the name as bytes.
    """
    stream = np.random.default_rng(np.random.SeedSequence([seed, *name.encode()]))
    return stream.standard_normal(shape) if distribution == "normal" else stream.uniform(-1.0, 1.0, shape)


def legacy_draw(stream: np.random.RandomState, distribution: str, shape: tuple[int, ...]) -> Array:
    """Draw the next array of a legacy stream, as `np.random.seed` documents do: N(0, 1) or U(0, 1)."""
    return stream.normal(size=shape) if distribution == "normal" else stream.random_sample(shape)
