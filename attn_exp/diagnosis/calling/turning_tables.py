"""What turns queries and keys where a layer takes it from its caller: cosines and sines of the angles asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.rules.positions.rope import Rope


@dataclass(frozen=True)
class Turning:
    """The rotary positions that are asked for, how many numbers of a head are turned, and in which sense, 1 or -1."""

    rope: Rope
    size: int
    sense: int = 1

    def angles(self, rows: int, count: int) -> Array | None:
        """Return the angles of each token, `[t count]`: one for each pair, or for each number; None of other counts."""
        pairs = self.sense * self.rope.angles(np.arange(float(rows)), self.size)
        if count == self.size // 2:
            return pairs
        if count != self.size:
            return None
        return np.repeat(pairs, 2, axis=1) if self.rope.interleaved else np.concatenate([pairs, pairs], axis=1)


def as_asked(positions: tuple[Any, ...], size: int) -> Turning | None:
    """Return the rotary positions among those asked for, for heads of so many numbers."""
    rope = next((one for one in positions if isinstance(one, Rope)), None)
    return None if rope is None else Turning(rope, size if rope.size is None else rope.size)


def filled(
    shape: str, lengths: dict[str, int], turning: Turning, made_of: Callable[[Array], Array]
) -> Array | None:  # fmt: skip
    """Return a table of what is made of the angles; None where the shape is that of no table."""
    letters = shape.split()
    if letters[-1] != "d" or "t" not in letters:
        return None
    angles = turning.angles(lengths["t"], lengths["d"])
    if angles is None:
        return None
    laid = made_of(angles).reshape([lengths[one] if one in "td" else 1 for one in letters])
    return np.broadcast_to(laid, [lengths[one] for one in letters]).copy()


def complex_numbers(letters: list[str], lengths: dict[str, int], turning: Turning) -> Array | None:
    """Return a complex number of length 1 for each pair of each token."""
    angles = turning.angles(lengths["t"], lengths["e"])
    if angles is None:
        return None
    laid = np.exp(1j * angles).reshape([lengths[one] if one in "te" else 1 for one in letters])
    return np.broadcast_to(laid, [lengths[one] for one in letters]).copy()


def in_pairs(rows: int, count: int, turning: Turning) -> Array | None:
    """Return cosines and sines beside each other, `[t pairs 2]`."""
    angles = turning.angles(rows, count)
    return None if angles is None else np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def in_matrices(rows: int, count: int, turning: Turning) -> Array | None:
    """Return a matrix for each pair of each token, `[t pairs 2 2]`, that turns a column."""
    angles = turning.angles(rows, count)
    if angles is None:
        return None
    cosines, sines = np.cos(angles), np.sin(angles)
    rows_of = partial(np.stack, axis=-1)
    return np.stack([rows_of([cosines, -sines]), rows_of([sines, cosines])], axis=-2)
