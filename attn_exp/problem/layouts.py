"""How projections lie in a file: whole, head by head, turned as `nn.Linear` keeps them, or three in one.

Each becomes what a run computes with: W_q, W_k, W_v `[m h*d]`, W_o `[h*e m]`, a bias one row. What does not fit says
its own shape and the one expected.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError


class Sizes(NamedTuple):
    """What an array has to fit: the width of x, the number of heads, and the size of v where that is known.

    `memory` is the width of a memory, which W_k and W_v project in the place of x.
    """

    d_model: int
    head: int
    v: int | None = None
    memory: int | None = None

    def of(self, name: str) -> Sizes:
        """Return the sizes that an array has to fit, whose `d_model` is the width of what it projects."""
        return self._replace(d_model=self.memory) if self.memory is not None and name in ("W_k", "W_v") else self


def laid_out(array: Array, name: str, sizes: Sizes, turned: bool, said: str) -> Array:
    """Return an array `[m h*d]`, `[h m d]`, `[m h d]`, or `turned`, as one matrix `[m h*d]`, and a bias as `[1 h*d]`.

    Raises:
        UserError: another shape; `said` names where the array comes from.
    """
    sizes = sizes.of(name)
    if name.startswith("b_"):
        return bias(array, sizes.head, said)
    if array.ndim == 3:
        return joined(np.swapaxes(array, 1, 2) if turned else array, name == "W_o", sizes, turned, said)
    if array.ndim != 2:
        raise misfit(array, "rows and columns, or heads of them", said)
    matrix = array.T if turned else array
    axis, expected, meaning = fitting(name, sizes)
    if expected is not None and matrix.shape[axis] != expected:
        hint = (
            f"; it fits with projections.turned={str(not turned).lower()}" if matrix.T.shape[axis] == expected else ""
        )
        raise misfit(array, written(name, sizes, turned), said, f", {meaning}={expected}{hint}")
    return matrix


def fitting(name: str, sizes: Sizes) -> tuple[int, int | None, str]:
    """Return which axis of a matrix is known beforehand, how long it is, and what it is called."""
    if name == "W_o":
        return 0, sizes.v, "the size of v"
    return 0, sizes.d_model, "d_model" if sizes.of(name) is sizes else "the memory's width"


def written(name: str, sizes: Sizes, turned: bool) -> str:
    """Write the shape of a matrix as far as it is known."""
    rows, columns = (str(sizes.v), "m") if name == "W_o" else (str(sizes.d_model), "h*d")
    return f"[{columns},{rows}]" if turned else f"[{rows},{columns}]"


def joined(array: Array, output: bool, sizes: Sizes, turned: bool, said: str) -> Array:
    """Return matrices of heads, `[h m d]` or JAX's `[m h d]`, side by side, and those of W_o, `[h d m]`, one above the
    other.

    Keys and values may have fewer heads, which the queries share.
    """
    heads, rows, _ = array.shape
    if output:
        if sizes.head % heads:
            raise misfit(array, f"[{sizes.head},d,m]", said, f", one matrix for each of head={sizes.head}")
        return array.reshape(heads * rows, -1)
    if rows == sizes.d_model and sizes.head % heads == 0:
        return array.swapaxes(0, 1).reshape(rows, -1)
    if not turned and heads == sizes.d_model and sizes.head % rows == 0:
        return array.reshape(heads, -1)
    expected = f"[{sizes.head},d,{sizes.d_model}]" if turned else f"[{sizes.head},{sizes.d_model},d]"
    raise misfit(array, expected, said, f", one matrix for each of head={sizes.head}")


def bias(array: Array, head: int, said: str) -> Array:
    """Return a bias `[h*d]`, `[h d]`, or as one row or one column, as one row."""
    if array.ndim == 1 or (array.ndim == 2 and (1 in array.shape or head % array.shape[0] == 0)):
        return array.reshape(1, -1)
    raise misfit(array, f"[h*d], or [{head},d] by heads", said)


def parted(array: Array, name: str, sizes: Sizes, turned: bool, said: str) -> dict[str, Array]:
    """Return the three arrays of one that holds queries, keys and values side by side: `[m 3n]`, or `[3n]`."""
    axis = 0 if turned and array.ndim == 2 else array.ndim - 1
    if not is_threefold(array, axis, sizes.d_model):
        expected = f"[3n,{sizes.d_model}]" if turned else f"[{sizes.d_model},3n]"
        turns = array.ndim == 2 and is_threefold(array, 1 - axis, sizes.d_model)
        hint = f"; it fits with projections.turned={str(not turned).lower()}" if turns else ""
        raise misfit(array, expected, said, f", queries, keys and values side by side{hint}")
    return {f"{name[:2]}{letter}": part for letter, part in zip("qkv", np.split(array, 3, axis), strict=True)}


def is_threefold(array: Array, axis: int, d_model: int) -> bool:
    """Say whether an array can be three side by side along an axis, the other one as wide as x."""
    return array.ndim in (1, 2) and array.shape[axis] % 3 == 0 and (array.ndim == 1 or array.shape[1 - axis] == d_model)


def misfit(array: Array, expected: str, said: str, why: str = "") -> UserError:
    """Return the line that says which shape an array has, and which was expected."""
    shape = ",".join(map(str, array.shape))
    return UserError(f"{said} has the shape [{shape}]; expected {expected}{why}")
