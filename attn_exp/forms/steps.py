"""The steps of attention, done right: what `Recipe` starts from and a mistake does otherwise.

Each step takes where it stands (`At` of `pipeline.py`: rules and sizes) and the arrays of the stage before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.rules.positions.position import Position


def project(side: str, x: Array, arrays: Mapping[str, Array]) -> Array:
    """Return `x W + b` of one side, `q`, `k` or `v`: `[b t h*d]`."""
    flat = x @ arrays[f"W_{side}"]
    bias = arrays.get(f"b_{side}")
    return np.asarray(flat if bias is None else flat + bias)


def split(flat: Array, count: int) -> Array:
    """Cut `[b t h*d]` into heads `[b h t d]`: head i owns the numbers from `i d` to `(i + 1) d`."""
    batch, length, width = flat.shape
    return flat.reshape(batch, length, count, width // count).swapaxes(1, 2)


def place(at: Any, side: str, heads: Array, positions: Sequence[Position]) -> Array:
    """Mark the positions of queries, which stand after the past or `offset` keys later, and of keys; not of values."""
    if side == "v":
        return heads
    for position in positions:
        heads = turned(position, heads, (at.past if at.past else at.rules.offset) if side == "q" else 0)
    return heads


def turned(position: Position, heads: Array, start: Any) -> Array:
    """Return heads `[b h t d]` with the positions from `start` on marked."""
    return position.turn(heads, np.arange(heads.shape[2]) + start)


def share(at: Any, heads: Array) -> Array:
    """Give query head i the key/value head `i // (h / g)`."""
    return np.repeat(heads, at.heads // at.groups, axis=1) if at.groups != at.heads else heads


def score(at: Any, q: Array, k: Array) -> Array:
    """Return `q k^T`, `[b h t s]`, unless a score rule says otherwise."""
    if at.rules.pairing is not None:
        return np.asarray(at.rules.pairing.pair(q, k, at.grid.head))
    return np.asarray(q @ k.swapaxes(-1, -2))


def scaled(at: Any, scores: Array) -> Array:
    """Return the scores times the scale, `1 / sqrt(d)` unless another was asked for."""
    return np.asarray(scores * at.rules.scale)


def bent(at: Any, logits: Array) -> Array:
    """Bend each logit as score rules say, such as a soft-cap."""
    for rule in at.rules.scores:
        logits = rule.bend(logits)
    return logits


def biased(at: Any, capped: Array) -> Array:
    """Add what score rules add, such as ALiBi."""
    for rule in at.rules.scores:
        bias = rule.bias(at.grid)
        capped = capped if bias is None else capped + bias
    return capped


def allowed(at: Any) -> Array:
    """Return which places every mask allows, as booleans that broadcast to `[b h t s]`."""
    every = np.ones((1, 1, at.rows, at.keys), np.bool_)
    for mask in at.rules.masks:
        every = every & mask.allows(at.grid)
    return every


def forbid(at: Any, logits: Array, allowed: Array) -> Array:
    """Return the logits with -inf where nobody may attend."""
    return np.where(allowed, logits, -np.inf)


def normalize(at: Any, masked: Array) -> Array:
    """Return the weights of each row; those of a row without keys are zeros."""
    return np.asarray(at.rules.normalizer.weigh(masked, extra(at)))


def softmax(logits: Array, axis: int) -> Array:
    """Return the softmax over one axis."""
    powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def extra(at: Any) -> Array | None:
    """Return the logit per head that belongs to no key, `[h 1 1]`, or None."""
    extras = [rule.extra(at.grid.head) for rule in at.rules.scores]
    logits = [logit for logit in extras if logit is not None]
    return np.asarray(np.logaddexp.reduce(logits)) if logits else None


def after(at: Any, weights: Array, allowed: Array) -> Array:
    """Leave the weights as they are."""
    return weights


def mix(at: Any, weights: Array, v: Array, k: Array) -> Array:
    """Return `weights v`; a key of weight zero adds nothing, even where its value is NaN."""
    if np.isfinite(v).all():
        return np.asarray(weights @ v)
    products = np.where(weights[..., None] == 0, 0.0, weights[..., None] * v[..., None, :, :])
    return np.asarray(products.sum(axis=-2))


def gather(at: Any, context: Array) -> Array:
    """Leave the contexts of the heads as they are."""
    return context


def merge(at: Any, context: Array) -> Array:
    """Put the heads side by side, `[b t h*e]`."""
    batch, heads, rows, size = context.shape
    return context.swapaxes(1, 2).reshape(batch, rows, heads * size)


def finish(at: Any, merged: Array, weight: Array | None, bias: Array | None) -> Array:
    """Return `merged W_o + b_o`, as far as there is any."""
    answer = merged if weight is None else merged @ weight
    return np.asarray(answer if bias is None else answer + bias)
