"""How positions turn queries and keys: pairs of columns and their cosines and sines, which a person can use by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.executing import first_position
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem
from attn_exp.rules.positions.position import Position

TRIED = 16
"""Places at which it is seen which columns a position turns together; at the first of all it turns none."""
SAME = 1e-9
"""Numbers nearer than this are the same."""


@dataclass(frozen=True, eq=False)
class Turned:
    """Pairs of columns of a head, from 0, and the `cos` and `sin` `[tokens pairs]` by which each token's are turned.

    Columns a and b become `a cos - b sin` and `a sin + b cos`.
    """

    pairs: tuple[tuple[int, int], ...]
    cos: Array
    sin: Array


def turned_sides(settled: Settled, problem: Problem) -> dict[str, Turned] | None:
    """Return how the variant turns `q` and `k`; nothing where positions turn none, None where no pairs say it."""
    turning = [position for position in settled.positions if not position.changes_x]
    if not turning or problem.q is None or problem.k is None:
        return {}
    size = problem.q.shape[-1] // settled.heads.query
    first, rows, keys = first_position(settled, problem), len(problem.q), len(problem.k)
    q, k = of_side(turning, "q", size, first + np.arange(rows)), of_side(turning, "k", size, np.arange(keys))
    return None if q is None or k is None else {"q": q, "k": k}


def of_side(turning: Sequence[Position], side: str, size: int, places: Array) -> Turned | None:
    """Return the pairs, cosines and sines of one side at some places, or None where it is no turning of pairs."""
    tried = np.concatenate([places, np.arange(TRIED)])
    matrix = np.stack([moved(turning, side, row, tried) for row in np.eye(size)], axis=1)  # [places d d]
    linear = moved(turning, side, np.arange(1.0, size + 1), tried)
    if not np.allclose(np.einsum("i,pij->pj", np.arange(1.0, size + 1), matrix), linear, atol=SAME):
        return None
    apart = (np.abs(matrix) > SAME).any(axis=0) & ~np.eye(size, dtype=bool)
    pairs = tuple((int(a), int(b)) for a, b in np.argwhere(apart) if a < b)
    columns = [column for pair in pairs for column in pair]
    if len(set(columns)) < len(columns):
        return None
    left, right = np.array(pairs, dtype=int).reshape(-1, 2).T
    cos, sin = matrix[:, left, left], matrix[:, left, right]
    again = np.broadcast_to(np.eye(size), matrix.shape).copy()
    again[:, left, left] = again[:, right, right] = cos
    again[:, left, right], again[:, right, left] = sin, -sin
    if not np.allclose(again, matrix, atol=SAME):
        return None
    return Turned(pairs, cos[: len(places)], sin[: len(places)])


def moved(turning: Sequence[Position], side: str, row: Array, places: Array) -> Array:
    """Return one vector of a head as it is at each place `[places d]`."""
    heads = np.repeat(row[None], len(places), axis=0)
    for position in turning:
        heads = position.turn(heads, places) if side == "q" else position.turn_key(heads, places)
    return heads
