"""Rotary positions: queries and keys are rotated by angles proportional to their position."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.kinds import PositiveFloat
from attn_exp.errors import brief
from attn_exp.rules.example import Example
from attn_exp.rules.positions.position import Position, Twin, Vector


@dataclass(frozen=True)
class Rope(Position):
    """Rotates feature pair i of a head by `position / stretch / base^(2i / d)`.

    The dot product of a rotated query and a rotated key depends only on their distance.

    - `interleaved` pairs feature `2i` with `2i+1`, as in the paper and Llama's own code. Otherwise, feature i is paired
      with `i + d/2`, as in GPT-NeoX and Hugging Face. Weights trained with one pairing are useless with the other.
    - `size`: only the first `size` features of a head are rotated.
    - `stretch` divides positions (Chen et al. 2023, "Extending Context Window via Positional Interpolation").

    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.
    """

    relative = True

    base: PositiveFloat = 10000.0
    interleaved: bool = False
    size: int | None = None
    stretch: PositiveFloat = 1.0

    def misfit(self, size: int) -> str | None:
        rotated_size = size if self.size is None else self.size
        if rotated_size % 2 or not 0 < rotated_size <= size:
            count = f"{brief(str(rotated_size))} of the {size} numbers of a head"
            return f"rope rotates pairs, but the settings rotate {count}; expected 2, 4, ..."
        return None

    def turn(self, heads: Array, positions: Array) -> Array:
        size = self.size or heads.shape[-1]
        angles = self.angles(positions, size)
        return rotate_pairs(heads, np.cos(angles), np.sin(angles), self.interleaved)

    def angles(self, positions: Array, size: int) -> Array:
        """Return the angle of each pair at each position, `[t pairs]`."""
        return positions[:, None] / self.stretch / self.base ** (np.arange(0, size, 2) / size)

    def twin(self) -> Twin:
        return Twin(turn=self.rotate_vector, turn_key=self.rotate_vector)

    def rotate_vector(self, numbers: Vector, position: int) -> list[float]:
        """Return a head with each pair `(a, b)` rotated as the complex number `(a + bi) e^(i angle)`."""
        result, size = list(numbers), self.size or len(numbers)
        for pair in range(size // 2):
            angle = self.angle(position, pair, size)
            first, second = (2 * pair, 2 * pair + 1) if self.interleaved else (pair, pair + size // 2)
            point = complex(numbers[first], numbers[second]) * complex(math.cos(angle), math.sin(angle))
            result[first], result[second] = point.real, point.imag
        return result

    def angle(self, position: int, pair: int, size: int) -> float:
        """Return the angle of one pair at one position: `position / stretch / base^(2 pair / size)`."""
        return position / self.stretch * math.pow(self.base, -2 * pair / size)


def rotate_pairs(heads: Array, cosines: Array, sines: Array, interleaved: bool = False) -> Array:
    """Rotate each pair `(a, b)` to `(a cos - b sin, a sin + b cos)`; features past `2 * pairs` are unchanged.

    `heads` `[... t d]`; `cosines`, `sines` `[... t pairs]`. Every step is rounded to the type of `heads`.

    Source: ONNX operator `RotaryEmbedding`, opset 23.
    """
    pairs = cosines.shape[-1]
    cosines, sines = cosines.astype(heads.dtype), sines.astype(heads.dtype)
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    result = heads.copy()
    result[..., first] = heads[..., first] * cosines - heads[..., second] * sines
    result[..., second] = heads[..., first] * sines + heads[..., second] * cosines
    return result


def rotary_embedding(
    x: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: bool = False,
    rotary_embedding_dim: int = 0,
    num_heads: int | None = None,
) -> Array:
    """Rotate the pairs of x by the given cosines and sines, as the ONNX operator `RotaryEmbedding` does.

    `x` `[b h t d]`, or `[b t h*d]` with `num_heads`; caches `[b t pairs]`, or `[positions pairs]` with `position_ids`
    `[b t]`. `rotary_embedding_dim` is the number of features of a head that are rotated; 0 = all.

    Raises:
        ValueError: a cache does not have one column per rotated pair, or `num_heads` does not divide the last axis.
    """
    if x.ndim == 3:
        if not num_heads or x.shape[-1] % num_heads:
            raise ValueError(f"num_heads={num_heads} does not divide the last axis of x, {x.shape[-1]}")
        heads = x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)
    else:
        heads = x
    size = rotary_embedding_dim or heads.shape[-1]
    if cos_cache.shape[-1] != size // 2 or sin_cache.shape[-1] != size // 2:
        raise ValueError(
            f"the caches have {cos_cache.shape[-1]} and {sin_cache.shape[-1]} columns; "
            f"expected {size // 2} for {size} features"
        )
    cosines, sines = (cache if position_ids is None else cache[position_ids] for cache in (cos_cache, sin_cache))
    rotated_heads = rotate_pairs(heads, cosines[:, None], sines[:, None], interleaved)
    return rotated_heads.swapaxes(1, 2).reshape(x.shape) if x.ndim == 3 else rotated_heads


C, S = 0.540302305868140, 0.841470984807897  # the cosine and sine of 1

EXAMPLE = Example(
    settings={"size": 2},
    given=((1.0, 2.0, 7.0), (1.0, 2.0, 7.0)),
    outcome=((1.0, 2.0, 7.0), (C - 2 * S, S + 2 * C, 7.0)),
    keys=((1.0, 0.0, 7.0), (0.0, 3.0, 7.0)),
    keys_after=((1.0, 0.0, 7.0), (-3 * S, 3 * C, 7.0)),
    outside=Example(
        settings={"base": 100.0, "interleaved": True},
        given=((1.0, 0.0, 1.0, 0.0),) * 3,
        outcome=(
            (1.0, 0.0, 1.0, 0.0),
            (0.54030231, 0.84147098, 0.99500417, 0.09983342),
            (-0.41614684, 0.90929743, 0.98006658, 0.19866933),
        ),
        decimals=8,
        source="Su et al. 2021, equation 15, with the sines and cosines that Saeed 2022 prints (see `sinusoidal`)",
    ),
)
