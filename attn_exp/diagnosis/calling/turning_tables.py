"""Tables that a caller passes: cosines and sines of rotary angles, masks of one number, positions and lengths."""

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


def fill_table(
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


def turn_pairs(rows: int, count: int, turning: Turning) -> Array | None:
    """Return a matrix for each pair of each token, `[t pairs 2 2]`, that turns a column."""
    angles = turning.angles(rows, count)
    if angles is None:
        return None
    cosines, sines = np.cos(angles), np.sin(angles)
    rows_of = partial(np.stack, axis=-1)
    return np.stack([rows_of([cosines, -sines]), rows_of([sines, cosines])], axis=-2)


@dataclass(frozen=True)
class Sizes:
    """The sizes of a call, and one of its arrays, which says the library and the type; how tables turn, if they do."""

    batch: int
    rows: int
    keys: int
    x: Any
    turning: Turning | None = None

    def array(self, array: Array) -> Any:
        """Return an array of NumPy in the library of x; numbers in its type."""
        return beside(array, self.x)


Make = Callable[[Sizes], Any]


@dataclass(frozen=True)
class Filled:
    """What makes an array of one number; `shape` is in the letters of axes, `turns` is the size of a head.

    r counts the distances between queries and keys, as those need who code places by them.
    """

    shape: str
    value: float | bool
    turns: int = 0
    of_angles: bool = False
    """Whether it is a table of angles themselves, where they are asked for; others are of cosines, or of sines."""

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
    """Return what makes the places of tokens."""

    def make(sizes: Sizes) -> Any:
        places = np.arange(sizes.rows)
        return sizes.array(np.tile(places, (sizes.batch, 1)) if shape == "b t" else places)

    return make


def rotations(shape: str, size: int) -> Make:
    """Return what makes complex numbers that turn nothing."""

    def make(sizes: Sizes) -> Any:
        lengths = {"t": sizes.rows, "e": size // 2, "1": 1, "b": sizes.batch}
        turned = None if sizes.turning is None else complex_numbers(shape.split(), lengths, sizes.turning)
        ones = np.ones([lengths[letter] for letter in shape.split()], np.complex128)
        return sizes.array(ones if turned is None else turned)

    return make


def in_matrices(size: int, more: int = 2) -> Make:
    """Return what makes a matrix for each two numbers of a head that turns them by no angle, `[1 1 t d/2 2 2]`.

    `more`: how many axes of length 1 stand before.
    """

    def make(sizes: Sizes) -> Any:
        turned = None if sizes.turning is None else turn_pairs(sizes.rows, size // 2, sizes.turning)
        matrices = np.tile(np.eye(2), (sizes.rows, size // 2, 1, 1)) if turned is None else turned
        return sizes.array(matrices.reshape(*[1] * more, *matrices.shape))

    return make


def lengths(sizes: Sizes) -> Any:
    """Return the length of each entry of a batch: all keys."""
    return sizes.array(np.full(sizes.batch, sizes.keys, np.int64))


def ends_of(side: str) -> Make:
    """Return what makes where each of the texts ends that lie one after the other, from 0 on: here there is one."""
    return lambda sizes: sizes.array(np.array([0, getattr(sizes, side)], np.int32))
