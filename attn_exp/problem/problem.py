"""The problem of a run: one input, from whatever stage it starts, that every variant computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.problem.drawing import all_drawn, begun
from attn_exp.problem.embeddings import start
from attn_exp.problem.matrices import BIASES, MATRICES
from attn_exp.problem.projections import project

Array = NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """Token names, and the arrays the computation starts from; what lies before its first stage is None.

    `x` `[t m]`; `projections` W_q, W_k, W_v, W_o, b_q, b_k, b_v, b_o; `q` `[t d]`, `k` `[s d]`, `v` `[s e]` with the
    heads side by side; `weights` `[t s]` where even they are given.
    """

    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    x: Array | None
    q: Array | None
    k: Array | None
    v: Array | None
    weights: Array | None
    projections: Mapping[str, Array] = field(default_factory=dict)

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return len(self.key_tokens)


def build(config: Config) -> Problem:
    """Return the problem of a configuration.

    Raises:
        UserError: arrays that do not fit each other, projections where there is no x, x without projections, or
            numbers so large that scores overflow.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            problem = assembled(config)
            check_size(problem)
    except MemoryError as error:
        raise UserError("the input does not fit into memory; choose fewer tokens, or a smaller d_model") from error
    return problem


def check_size(problem: Problem) -> None:
    """Refuse numbers whose scores `q k^T` may overflow: attention would end in NaN, or in no weights at all."""
    largest = {
        name: float(np.abs(side).max())
        for name, side in (("q", problem.q), ("k", problem.k), ("v", problem.v))
        if side is not None
    }
    width = 1 if problem.q is None else problem.q.shape[1]
    if not np.isfinite(np.float64(largest.get("q", 0)) * largest.get("k", 0) * width + largest.get("v", 0)):
        sizes = ", ".join(f"{name} up to {number:.1e}" for name, number in largest.items())
        raise UserError(f"the input is too large: {sizes}; scores overflow a 64-bit float; scale it down")


def assembled(config: Config) -> Problem:
    """Return the problem of a configuration, its numbers as large as they are."""
    source = begun(config.generator, config.seed)
    drawn = all_drawn(config.draws or {}, source)
    given = start(config.embeddings, source, drawn)
    if given.x is None:
        return starting_late(config, given.tokens, given.q, given.k, given.v, given.weights)
    if config.projections.source == "none":
        raise UserError("projections=none, but the input is x; give embeddings.q, k and v, or choose other projections")
    named = {name: array for name, array in drawn.items() if name in MATRICES + BIASES}
    arrays = project(config.projections, given.x, config.head, config.bias, source, named)
    q, k, v = (projected(given.x, arrays, letter) for letter in "qkv")
    return Problem(given.tokens, given.tokens, given.x, q, k, v, None, arrays)


def projected(x: Array, arrays: Mapping[str, Array], letter: str) -> Array:
    """Return `x W + b`, or `x W` where there is no b."""
    product = (x @ arrays[f"W_{letter}"]).astype(x.dtype, copy=False)
    return product + arrays[f"b_{letter}"] if f"b_{letter}" in arrays else product


def starting_late(
    config: Config,
    tokens: tuple[str, ...],
    q: Array | None,
    k: Array | None,
    v: Array | None,
    weights: Array | None,
) -> Problem:
    """Return a problem that starts at q, k and v, or at weights and v."""
    if config.projections.source != "none":
        raise UserError("the input starts after the projections; use projections=none")
    given = [*config.projections.given, *config.projections.printed]
    if given:
        raise UserError(f"projections: {' and '.join(given)} given, but the input starts after them; leave them out")
    if weights is None and q is not None and k is not None and q.shape[1] % k.shape[1]:
        raise UserError(f"embeddings.q has {q.shape[1]} numbers per query, embeddings.k has {k.shape[1]} per key")
    keys = weights.shape[1] if weights is not None else len(k) if k is not None else 0
    if v is not None and len(v) != keys:
        raise UserError(f"embeddings.v has {len(v)} rows; expected one for each of {keys} keys")
    key_tokens = tokens if keys == len(tokens) else tuple(f"k{place}" for place in range(keys))
    return Problem(tokens, key_tokens, None, q, k, v, weights)
