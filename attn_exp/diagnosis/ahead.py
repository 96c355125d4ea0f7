"""The question that shows a small fill in a type of few digits: hidden keys whose logits and values are far larger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asked import Asked
from attn_exp.diagnosis.case import Case
from attn_exp.rules.masks.array import Allowed

SEEN, HIDDEN = -9.0, -1.0
"""Logits of the first half of the keys and of the others. Those of one half are equal, so a half type shares evenly."""
LARGER = 16.0
"""How much larger the values of the other half are."""


def can_be_asked(asked: Asked) -> bool:
    """Say whether logits can be chosen: nothing but the scale changes them."""
    return not asked.positions and not asked.scores and asked.normalizer.exponential and bool(asked.scale)


def ahead(case: Case) -> Case:
    """Return the case of heads or of a layer with chosen logits: each is `scale q k`, or `scale x W_q (x W_k)`."""
    given = case.given
    if given.x is not None:
        return replace(case, given=replace(given, x=marked(case, given.x), arrays=picking(given.arrays)))
    assert given.q is not None and given.k is not None and given.v is not None
    keys = logits(given.k.shape[2]) / (case.recipe.rules.scale * given.q.shape[-1])
    k = np.broadcast_to(keys[:, None], given.k.shape).copy()
    return replace(case, given=replace(given, q=np.ones_like(given.q), k=k, v=given.v * sizes(given.k.shape[2])))


def logits(keys: int) -> Array:
    """Return the logit of each key, whatever the query."""
    return np.where(np.arange(keys) < keys // 2, SEEN, HIDDEN)


def sizes(keys: int) -> Array:
    """Return by what the values of each key are multiplied, `[s 1]`."""
    return np.where(np.arange(keys) < keys // 2, 1.0, LARGER)[:, None]


def marked(case: Case, x: Array) -> Array:
    """Return x with 1 as its first number and what makes the logit as its second."""
    length, size = x.shape[1], case.given.arrays["W_q"].shape[1] // case.recipe.heads
    x = x * sizes(length)
    x[..., 0], x[..., 1] = 1.0, logits(length) / (case.recipe.rules.scale * size)
    return x


def picking(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return a layer's matrices, whose queries are the first number of x and whose keys the second."""
    chosen = {name: np.zeros_like(arrays[name]) for name in ("W_q", "W_k", "b_q", "b_k") if name in arrays}
    chosen["W_q"][0], chosen["W_k"][1] = 1.0, 1.0
    return dict(arrays) | chosen


def half_hidden(rng: np.random.Generator, rows: int, keys: int, first: bool = False) -> Allowed:
    """Return a mask that hides the other half of the keys from every query, and of the first half all but some.

    With `first` every query sees the first key, which masks beside this one leave too.
    """
    seen = rng.random((rows, keys)) < 0.6
    seen[:, keys // 2 :] = False
    seen[np.arange(rows), np.arange(rows) % (keys // 2)] = True
    seen[:, 0] |= first
    return Allowed(seen)
