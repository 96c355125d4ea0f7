"""The matrices and biases that turn x into queries, keys and values, and heads into the output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.inputs import DISTRIBUTIONS, Projections
from attn_exp.errors import UserError, unknown
from attn_exp.problem.drawing import Distribution, Numbers, array_or_drawn, ordered, widths
from attn_exp.problem.matrices import BIASES, MATRICES, Inputs, grouped, is_plain


def project(
    settings: Projections, inputs: Inputs, head: int, bias: bool, source: Numbers, drawn: Mapping[str, Array]
) -> dict[str, Array]:
    """Return W_q, W_k, W_v, W_o, and with `bias` b_q, b_k, b_v, b_o, from where the settings say.

    W_q is `[m h*d]`, W_k and W_v `[n h*d]`, W_o `[h*e m]`: keys and values are made from the memory `[s n]` if there is
    one, else from x `[t m]`, where n is m.

    Tokens are rows: `q = x W_q + b_q`. A document with tokens in columns writes `W x + b`; its arrays are transposed
    here. Arrays that are `drawn` already, by name, are taken as they are.

    Raises:
        UserError: a name is no projection, or an array does not fit x.
    """
    named = from_document(settings, inputs, head, source)
    for name in drawn:
        if name in named:
            raise UserError(f"projections.given.{name} and draws.{name} both say what {name} is; give one of them")
    unused = [name for name in named if name in BIASES and name not in (*settings.order, *settings.order_per_head)]
    if unused and not bias:
        raise UserError(f"projections: {' and '.join(unused)} given, but bias=false adds none; write bias=true")
    named |= drawn
    for name in MATRICES[:3]:
        if name in named:
            meaning = "d_model" if inputs.of(name) is inputs.x else "the memory's width"
            check_rows(name, named[name], meaning, inputs.width(name), settings.transposed)
    named |= ordered(settings, named, inputs, head, bias, source)
    arrays: dict[str, Array] = {}
    for name in MATRICES + BIASES if bias else MATRICES:
        shape = fitting_shape(name, arrays, settings, inputs, head)
        arrays[name] = named[name] if name in named else made(settings, name, shape, source)
    check(arrays, head, settings.transposed)
    return {name: matrix.reshape(-1) if name in BIASES else matrix for name, matrix in arrays.items()}


def from_document(settings: Projections, inputs: Inputs, head: int, source: Numbers) -> dict[str, Array]:
    """Return the arrays that the settings give, a bias as one row: in a file, written out, or recovered."""
    named: dict[str, Array] = {}
    if settings.file is not None or not all(map(is_plain, settings.given.values())):
        from attn_exp.problem import from_files  # noqa: PLC0415 - most runs have none

        named = from_files.projections(settings, inputs, head)
    for name, given in settings.given.items():
        if is_plain(given):
            matrix = array_or_drawn(rows(given), f"projections.{name}", source)
            named[name] = matrix.T if settings.columns or settings.transposed else matrix
    named |= recover(settings.printed, inputs, source)
    for name in named:
        if name not in MATRICES + BIASES:
            raise UserError(unknown(name, MATRICES + BIASES, "array of projections"))
    return named


def check_rows(name: str, matrix: Array, meaning: str, size: int, transposed: bool) -> None:
    if len(matrix) != size:
        fits = f"; it fits with projections.transposed={str(not transposed).lower()}" if matrix.shape[1] == size else ""
        raise UserError(f"projections.{name} has the shape {list(matrix.shape)}; expected {meaning}={size} rows{fits}")


def fitting_shape(
    name: str, arrays: Mapping[str, Array], settings: Projections, inputs: Inputs, head: int
) -> tuple[int, int]:
    """Return the shape of an array that has to fit the ones before it: W_o follows W_v, a bias its matrix."""
    if name in BIASES:
        return 1, arrays[MATRICES[BIASES.index(name)]].shape[1]
    width = widths(settings, inputs.width())
    if name == "W_o":
        sharing = grouped(arrays["W_q"].shape[1], arrays["W_k"].shape[1], head)
        return arrays["W_v"].shape[1] * sharing, width["o"]
    return inputs.width(name), width[name[-1]]


def made(settings: Projections, name: str, shape: tuple[int, int], source: Numbers) -> Array:
    """Make an array that no document gives: drawn from its own stream, or the identity or zeros, which have no effect.

    By default a drawn array is scaled to keep the size of what it multiplies.

    Raises:
        UserError: an identity for a memory of another width than x, which would be cut or padded.
    """
    if settings.source in DISTRIBUTIONS:
        distribution = Distribution(settings.source, settings.low, settings.high, key="projections.")
        numbers = source._replace(stream=None).array(name, distribution, shape)
        usual = 1.0 if settings.source == "integers" else 1 / math.sqrt(shape[0] if name in MATRICES else shape[1])
        return (usual if settings.spread is None else settings.spread) * numbers
    if name in ("W_k", "W_v") and shape[0] != shape[1]:
        raise UserError(
            f"projections=identity leaves vectors as they are: the memory's have {shape[0]} numbers, those of x "
            f"{shape[1]}; choose projections=normal"
        )
    return np.eye(*shape) if name in MATRICES else np.zeros(shape)


def recover(printed: Mapping[str, Any], inputs: Inputs, source: Numbers) -> dict[str, Array]:
    """Solve `x W = printed` for projections of which a document prints only the results."""
    arrays: dict[str, Array] = {}
    for name, given in printed.items():
        x = inputs.of(name)
        if x.shape[0] != x.shape[1] or np.linalg.matrix_rank(x) < len(x):
            shape, whose = f"{x.shape[0]}x{x.shape[1]}", "x" if x is inputs.x else "memory"
            raise UserError(
                f"projections: {', '.join(printed)} can be recovered only from {whose} with an inverse, and this "
                f"{shape} {whose} has none"
            )
        result = array_or_drawn(given, f"projections.{name}", source)
        if len(result) != len(x):
            raise UserError(
                f"projections.{name}: {len(result)} rows are printed; expected one for each of {len(x)} tokens"
            )
        arrays[name] = np.linalg.solve(x, result)
    return arrays


def rows(given: Any) -> Any:
    if isinstance(given, np.ndarray) and given.ndim == 1:
        return given[None]
    return [given] if isinstance(given, (list, tuple)) and given and not isinstance(given[0], (list, tuple)) else given


def check(arrays: Mapping[str, Array], head: int, transposed: bool) -> None:
    sharing = grouped(arrays["W_q"].shape[1], arrays["W_k"].shape[1], head)
    check_rows("W_o", arrays["W_o"], "the size of v", arrays["W_v"].shape[1] * sharing, transposed)
    for name, matrix in zip(BIASES, MATRICES, strict=True):
        if name in arrays and arrays[name].size != arrays[matrix].shape[1]:
            raise UserError(f"projections.{name} has {arrays[name].size} numbers; expected {arrays[matrix].shape[1]}")
