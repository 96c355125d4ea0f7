"""The matrices and biases that turn x into queries, keys, values, and heads into the output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.config import Projections, UserError
from attn_exp.embeddings import array
from attn_exp.streams import draw, legacy_draw

Array = NDArray[Any]

MATRICES = ("W_q", "W_k", "W_v", "W_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")


def project(settings: Projections, x: Array, head: int, bias: bool, seed: int) -> dict[str, Array]:
    """Return W_q, W_k, W_v `[m h*d]`, W_o `[h*e m]`, and with `bias` b_q, b_k, b_v, b_o, from where the settings say.

    Tokens are rows: `q = x W_q + b_q`. A document with tokens in columns writes `W x + b`; its arrays are turned here.

    Raises:
        UserError: a name that is no projection, or an array that does not fit x.
    """
    d_model = x.shape[1]
    named = {
        name: turned(array(rows(given), f"projections.{name}"), settings.columns)
        for name, given in settings.given.items()
    }
    named |= recovered(settings.printed, x)
    named |= from_legacy_stream(settings, d_model, head)
    for name in named:
        if name not in MATRICES + BIASES:
            raise UserError(f"projections: unknown array {name}; choose from {', '.join(MATRICES + BIASES)}")
    wanted = MATRICES + BIASES if bias else MATRICES
    arrays = {name: named[name] if name in named else made(settings, name, d_model, seed) for name in wanted}
    arrays = {name: each.reshape(-1) if name in BIASES else each for name, each in arrays.items()}
    check(arrays, d_model)
    return arrays


def made(settings: Projections, name: str, d_model: int, seed: int) -> Array:
    """Make an array that no document gives: drawn from its own stream, or identity and zero."""
    if settings.source not in ("normal", "uniform"):
        return np.eye(d_model) if name in MATRICES else np.zeros(d_model)
    spread = 1 / math.sqrt(d_model) if settings.spread is None else settings.spread
    return spread * draw(seed, name, settings.source, (d_model, d_model) if name in MATRICES else (d_model,))


def from_legacy_stream(settings: Projections, d_model: int, head: int) -> dict[str, Array]:
    """Draw a document's arrays in its own order: first each head's, then those of the whole."""
    if settings.legacy_seed is None:
        return {}
    stream = np.random.RandomState(settings.legacy_seed)
    distribution = settings.distribution or "normal"
    parts: dict[str, list[Array]] = {}
    for names, width, times in (
        (settings.order_per_head, d_model // head, head),
        (settings.order, d_model, 1),
    ):
        for name in names * times:
            shape = (width, d_model if name in MATRICES else 1)
            shape = shape if settings.columns else shape[::-1]
            parts.setdefault(name, []).append(turned(legacy_draw(stream, distribution, shape), settings.columns))
    return {name: np.hstack(drawn) for name, drawn in parts.items()}


def recovered(printed: Mapping[str, Any], x: Array) -> dict[str, Array]:
    """Solve `x W = printed` for the projections whose results a document prints instead of them; x must be square."""
    return {name: np.linalg.solve(x, array(rows(result), f"projections.{name}")) for name, result in printed.items()}


def rows(given: Any) -> Any:
    """Write a bias vector as a matrix of one row."""
    return [given] if given and not isinstance(given[0], (list, tuple)) else given


def turned(matrix: Array, columns: bool) -> Array:
    return matrix.T if columns else matrix


def check(arrays: Mapping[str, Array], d_model: int) -> None:
    """Refuse arrays whose sizes do not follow from each other."""
    for name in ("W_q", "W_k", "W_v"):
        if arrays[name].shape[0] != d_model:
            raise UserError(f"projections.{name} has {arrays[name].shape[0]} rows; expected d_model={d_model}")
    for name, matrix in zip(BIASES, MATRICES, strict=True):
        if name in arrays and arrays[name].size != arrays[matrix].shape[1]:
            raise UserError(f"projections.{name} has {arrays[name].size} numbers; expected {arrays[matrix].shape[1]}")
