"""Types of numbers, and what a problem looks like in another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError, unknown
from attn_exp.problem.problem import Problem, with_sides

TYPES = ("float16", "bfloat16", "float32", "float64")


def kind(name: str) -> Any:
    """Return the NumPy type of that name.

    Raises:
        UserError: no such type, or bfloat16 without the library that has it.
    """
    if name not in TYPES:
        raise UserError(unknown(name, TYPES, "dtype"))
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes  # noqa: PLC0415 - needed for bfloat16 alone
    except ImportError as error:
        raise UserError("dtype=bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from error
    return np.dtype(ml_dtypes.bfloat16)


def limits(dtype: Any) -> Any:
    """Return what `numpy.finfo` says of a type, which knows nothing of bfloat16."""
    if np.dtype(dtype).name != "bfloat16":
        return np.finfo(dtype)
    import ml_dtypes  # noqa: PLC0415 - as above

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call] # the package has no annotations there


def rounded(problem: Problem, to: Any) -> Problem:
    """Return the problem with its inputs rounded to a type, and queries, keys and values projected in that type.

    What follows from the inputs is computed anew: rounding q itself would hide the rounding of the projection.
    """
    given = {name: cast(array, to) for name, array in problem.projections.items()}
    weights = cast(problem.weights, to)
    if problem.x is None:
        return replace(problem, q=cast(problem.q, to), k=cast(problem.k, to), v=cast(problem.v, to), weights=weights)
    x, memory = cast(problem.x, to), cast(problem.memory, to)
    return with_sides(replace(problem, x=x, memory=memory, weights=weights, projections=given))


def cast(array: Array | None, to: Any) -> Any:
    """Return an array in another type, and nothing where there is none."""
    return None if array is None else array.astype(to)
