"""The matrices and biases that turn x into queries, keys, values, and heads into the output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.inputs import Projections
from attn_exp.errors import UserError, unknown
from attn_exp.problem.draw_order import ordered, widths
from attn_exp.problem.drawing import Distribution, Numbers, array_or_drawn
from attn_exp.problem.matrices import BIASES, MATRICES, Widths, grouped


class Inputs(NamedTuple):
    """What is projected: x `[t m]` to queries, `source` `[s n]` to keys and values, which is x or the memory."""

    x: Array
    source: Array

    def of(self, name: str) -> Array:
        """Return what a matrix multiplies: all but W_k and W_v take x, or numbers as wide."""
        return self.source if name in ("W_k", "W_v") else self.x

    @property
    def widths(self) -> Widths:
        """How many numbers each token has."""
        return Widths(self.x.shape[1], self.source.shape[1])


def project(
    settings: Projections, inputs: Inputs, head: int, bias: bool, source: Numbers, drawn: Mapping[str, Array]
) -> dict[str, Array]:
    """Return W_q, W_k, W_v, W_o, and with `bias` b_q, b_k, b_v, b_o, from where the settings say.

    W_q is `[m h*d]`, W_k and W_v `[n h*d]`, W_o `[h*e m]`: keys and values are made of the memory `[s n]` where there
    is one, else of x `[t m]`, where n is m.
    Tokens are rows: `q = x W_q + b_q`. A document with tokens in columns writes `W x + b`; its arrays are turned here.
    What is `drawn` already, by name, is taken as it is.

    Raises:
        UserError: a name that is no projection, or an array that does not fit x.
    """
    named = from_document(settings, inputs, head, source)
    for name in drawn:
        if name in named:
            raise UserError(f"projections.given.{name} and draws.{name} both say what {name} is; give one of them")
    unused = [name for name in named if name in BIASES and name not in (*settings.order, *settings.order_per_head)]
    if unused and not bias:
        raise UserError(f"projections: {' and '.join(unused)} given, but bias=false adds none; write bias=true")
    named |= drawn
    named |= ordered(settings, named, inputs.widths, head, bias, source)
    arrays: dict[str, Array] = {}
    for name in MATRICES + BIASES if bias else MATRICES:
        shape = fitting_shape(name, arrays, settings, inputs.widths, head)
        arrays[name] = named[name] if name in named else made(settings, name, shape, source)
    check(arrays, inputs, head)
    return {name: matrix.reshape(-1) if name in BIASES else matrix for name, matrix in arrays.items()}


def from_document(settings: Projections, inputs: Inputs, head: int, source: Numbers) -> dict[str, Array]:
    """Return the arrays that the settings write out, a bias as one row: in a file, given, or recovered."""
    named = by_file_or_head(settings, inputs, head)
    for name, given in settings.given.items():
        if name not in named or is_plain(given):
            matrix = array_or_drawn(rows(given), f"projections.{name}", source)
            named[name] = turned(matrix, settings.columns or settings.turned)
    named |= recovered(settings.printed, inputs, source)
    for name in named:
        if name not in MATRICES + BIASES:
            raise UserError(unknown(name, MATRICES + BIASES, "array of projections"))
    return named


def by_file_or_head(settings: Projections, inputs: Inputs, head: int) -> dict[str, Array]:
    """Return the arrays that lie in files, or are written head by head."""
    if settings.file is None and all(map(is_plain, settings.given.values())):
        return {}
    from attn_exp.problem import from_files  # noqa: PLC0415 - most runs have none

    sizes = from_files.Sizes(
        inputs.x.shape[1], head, memory=None if inputs.source is inputs.x else inputs.source.shape[1]
    )
    others = {name: given for name, given in settings.given.items() if not is_plain(given)}
    return from_files.projections(settings, sizes) | {
        name: from_files.typed(given, name, sizes, settings.columns or settings.turned)
        for name, given in others.items()
    }


def is_plain(given: Any) -> bool:
    """Say whether an array is a description, or lists of rows: neither a file nor lists head by head."""
    inner = given
    for _ in range(2):
        inner = inner[0] if isinstance(inner, (list, tuple)) and inner else None
    return not isinstance(given, str) and not isinstance(inner, (list, tuple))


def fitting_shape(
    name: str, arrays: Mapping[str, Array], settings: Projections, inputs: Widths, head: int
) -> tuple[int, int]:
    """Return the shape of an array that has to fit the ones before it: W_o follows W_v, a bias its matrix."""
    if name in BIASES:
        return 1, arrays[MATRICES[BIASES.index(name)]].shape[1]
    width = widths(settings, inputs.x)
    if name == "W_o":
        sharing = grouped(arrays["W_q"].shape[1], arrays["W_k"].shape[1], head)
        return arrays["W_v"].shape[1] * sharing, width["o"]
    return inputs.of(name), width[name[-1]]


def made(settings: Projections, name: str, shape: tuple[int, int], source: Numbers) -> Array:
    """Make an array that no document gives: drawn from its own stream, or identity and zero."""
    return MADE.get(settings.source, neutral)(settings, name, shape, source)


def drawn_alone(settings: Projections, name: str, shape: tuple[int, int], source: Numbers) -> Array:
    """Draw an array from its own stream, as large as keeps the size of what it is multiplied with."""
    return factor(settings, name, shape) * source._replace(stream=None).array(name, distribution_of(settings), shape)


def distribution_of(settings: Projections) -> Distribution:
    """Return which random numbers an array is drawn from that has a stream of its own."""
    return Distribution(settings.source, settings.low, settings.high, key="projections.")


def factor(settings: Projections, name: str, shape: tuple[int, int]) -> float:
    """Return what those numbers are multiplied by."""
    inputs = shape[0] if name in MATRICES else shape[1]
    usual = 1.0 if settings.source == "integers" else 1 / math.sqrt(inputs)
    return usual if settings.spread is None else settings.spread


def neutral(settings: Projections, name: str, shape: tuple[int, int], source: Numbers) -> Array:
    """Return an array that changes nothing: the identity, or zeros.

    Raises:
        UserError: a memory of another width than x, which would be cut or filled.
    """
    if name in ("W_k", "W_v") and shape[0] != shape[1]:
        raise UserError(
            f"projections=identity leaves vectors as they are: the memory's have {shape[0]} numbers, those of x "
            f"{shape[1]}; choose projections=normal"
        )
    return np.eye(*shape) if name in MATRICES else np.zeros(shape)


MADE = {"normal": drawn_alone, "uniform": drawn_alone, "integers": drawn_alone}
"""How a rule of `projections.source` makes an array; the others change nothing."""


def recovered(printed: Mapping[str, Any], inputs: Inputs, source: Numbers) -> dict[str, Array]:
    """Solve `x W = printed` for the projections whose results a document prints instead of them."""
    for name in printed:
        x, whose = inputs.of(name), "x" if inputs.of(name) is inputs.x else "memory"
        if x.shape[0] != x.shape[1] or np.linalg.matrix_rank(x) < len(x):
            names, shape = ", ".join(printed), f"{x.shape[0]}x{x.shape[1]}"
            raise UserError(
                f"projections: {names} can be recovered only from {whose} with an inverse, and this {shape} {whose} "
                "has none"
            )
    results = {name: array_or_drawn(result, f"projections.{name}", source) for name, result in printed.items()}
    for name, result in results.items():
        count = len(inputs.of(name))
        if len(result) != count:
            raise UserError(
                f"projections.{name}: {len(result)} rows are printed; expected one for each of {count} tokens"
            )
    return {name: np.linalg.solve(inputs.of(name), result) for name, result in results.items()}


def rows(given: Any) -> Any:
    """Write a bias vector as a matrix of one row."""
    if isinstance(given, np.ndarray) and given.ndim == 1:
        return given[None]
    return [given] if isinstance(given, (list, tuple)) and given and not isinstance(given[0], (list, tuple)) else given


def turned(matrix: Array, columns: bool) -> Array:
    """Return a matrix with tokens in rows, where the document has them in columns."""
    return matrix.T if columns else matrix


def check(arrays: Mapping[str, Array], inputs: Inputs, head: int) -> None:
    """Refuse arrays whose sizes do not follow from each other; W_k may hold fewer heads than W_q, shared by groups."""
    sharing = grouped(arrays["W_q"].shape[1], arrays["W_k"].shape[1], head)
    source = "d_model" if inputs.source is inputs.x else "the memory's width"
    sizes = {
        "W_q": ("d_model", inputs.x.shape[1]),
        "W_k": (source, inputs.source.shape[1]),
        "W_v": (source, inputs.source.shape[1]),
        "W_o": ("the size of v", arrays["W_v"].shape[1] * sharing),
    }
    for name, (meaning, size) in sizes.items():
        if arrays[name].shape[0] != size:
            raise UserError(f"projections.{name} has {arrays[name].shape[0]} rows; expected {meaning}={size}")
    for name, matrix in zip(BIASES, MATRICES, strict=True):
        if name in arrays and arrays[name].size != arrays[matrix].shape[1]:
            raise UserError(f"projections.{name} has {arrays[name].size} numbers; expected {arrays[matrix].shape[1]}")
