"""Tables that a caller passes: rotary cosines and sines, constant masks, positions and lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.code.libraries import beside
from attn_exp.rules.positions.rope import Rope


@dataclass(frozen=True)
class Turning:
    """The requested rotary positions, how many numbers of a head they rotate, and the direction, 1 or -1."""

    rope: Rope
    size: int
    sense: int = 1

    def angles(self, rows: int, count: int) -> Array | None:
        """Return the angles of each token, `[t count]`, one per pair or per number; None for any other count."""
        pairs = self.sense * self.rope.angles(np.arange(float(rows)), self.size)
        if count == self.size // 2:
            return pairs
        if count != self.size:
            return None
        return np.repeat(pairs, 2, axis=1) if self.rope.interleaved else np.concatenate([pairs, pairs], axis=1)


def as_asked(positions: tuple[Any, ...], size: int) -> Turning | None:
    """Return the requested rotary positions for heads of this size, or None."""
    rope = next((one for one in positions if isinstance(one, Rope)), None)
    return None if rope is None else Turning(rope, size if rope.size is None else rope.size)


def fill_table(
    shape: str, lengths: dict[str, int], turning: Turning, made_of: Callable[[Array], Array]
) -> Array | None:  # fmt: skip
    """Return a table computed from the angles, or None if a table has no such shape."""
    letters = shape.split()
    if letters[-1] != "d" or "t" not in letters:
        return None
    angles = turning.angles(lengths["t"], lengths["d"])
    if angles is None:
        return None
    laid = made_of(angles).reshape([lengths[one] if one in "td" else 1 for one in letters])
    return np.broadcast_to(laid, [lengths[one] for one in letters]).copy()


def complex_numbers(letters: list[str], lengths: dict[str, int], turning: Turning) -> Array | None:
    """Return a complex number of length 1 for each pair of each token; None if the sizes do not fit."""
    angles = turning.angles(lengths["t"], lengths["e"])
    if angles is None:
        return None
    laid = np.exp(1j * angles).reshape([lengths[one] if one in "te" else 1 for one in letters])
    return np.broadcast_to(laid, [lengths[one] for one in letters]).copy()


def turn_pairs(rows: int, count: int, turning: Turning) -> Array | None:
    """Return a rotation matrix for each pair of each token, `[t pairs 2 2]`, for column vectors."""
    angles = turning.angles(rows, count)
    if angles is None:
        return None
    cosines, sines = np.cos(angles), np.sin(angles)
    rows_of = partial(np.stack, axis=-1)
    return np.stack([rows_of([cosines, -sines]), rows_of([sines, cosines])], axis=-2)


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call, one of its arrays for library and dtype, and the rotary positions, if any."""

    batch: int
    rows: int
    keys: int
    x: Any
    turning: Turning | None = None

    def array(self, array: Array) -> Any:
        """Convert a NumPy array to the library of x, numbers to its dtype."""
        return beside(array, self.x)


Make = Callable[[Sizes], Any]


@dataclass(frozen=True)
class Filled:
    """Makes a constant array, or a rotary table; `shape` names its axes, and `turns` is the head size.

    r is the number of distances between queries and keys, for relative positions.
    """

    shape: str
    value: float | bool
    turns: int = 0
    of_angles: bool = False
    """Whether a rotary table holds the angles themselves instead of their cosines or sines."""

    def __call__(self, sizes: Sizes) -> Any:
        lengths = {"b": sizes.batch, "t": sizes.rows, "s": sizes.keys, "1": 1, "d": self.turns,
                   "m": sizes.x.shape[-1], "r": sizes.rows + sizes.keys - 1}  # fmt: skip
        lengths["h"] = sizes.x.shape[-1] // self.turns if self.turns else 1
        lengths["n"] = sizes.batch * lengths["h"]
        if sizes.turning is not None and isinstance(self.value, float):
            made_of = partial(np.multiply, 1.0) if self.of_angles else np.cos if self.value else np.sin
            table = fill_table(self.shape, lengths, sizes.turning, made_of)
            if table is not None:
                return sizes.array(table)
        kind = np.bool_ if isinstance(self.value, bool) else np.int64 if isinstance(self.value, int) else np.float64
        return sizes.array(np.full([lengths[letter] for letter in self.shape.split()], self.value, kind))


def counted(shape: str) -> Make:
    """Return a function that makes the positions of tokens."""

    def make(sizes: Sizes) -> Any:
        places = np.arange(sizes.rows)
        return sizes.array(np.tile(places, (sizes.batch, 1)) if shape == "b t" else places)

    return make


def rotations(shape: str, size: int) -> Make:
    """Return a function that makes complex rotations, by no angle unless positions are requested."""

    def make(sizes: Sizes) -> Any:
        lengths = {"t": sizes.rows, "e": size // 2, "1": 1, "b": sizes.batch}
        turned = None if sizes.turning is None else complex_numbers(shape.split(), lengths, sizes.turning)
        ones = np.ones([lengths[letter] for letter in shape.split()], np.complex128)
        return sizes.array(ones if turned is None else turned)

    return make


def in_matrices(size: int, more: int = 2) -> Make:
    """Return a function that makes a 2x2 rotation per pair, the identity by default, `[1 1 t d/2 2 2]`.

    `more`: the number of leading axes of length 1.
    """

    def make(sizes: Sizes) -> Any:
        turned = None if sizes.turning is None else turn_pairs(sizes.rows, size // 2, sizes.turning)
        matrices = np.tile(np.eye(2), (sizes.rows, size // 2, 1, 1)) if turned is None else turned
        return sizes.array(matrices.reshape(*[1] * more, *matrices.shape))

    return make


def lengths(sizes: Sizes) -> Any:
    """Return the length of each batch entry: all keys."""
    return sizes.array(np.full(sizes.batch, sizes.keys, np.int64))


def ends_of(side: str) -> Make:
    """Return a function that builds `cu_seqlens` (here for one sequence)."""
    return lambda sizes: sizes.array(np.array([0, getattr(sizes, side)], np.int32))
