"""The correct steps of attention: the defaults of `Recipe`, which mistakes replace.

Each step takes the arrays of the previous stage, and rounds to their type. The steps after `split` also take `setup`, a
`Setup` of `pipeline.py` with the rules and all sizes. Arrays have the axes `[... h t s]`, with any leading axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp.arrays import Array, Arrays, add_up, widen

if TYPE_CHECKING:
    from attn_exp.forms.trace import Trace
    from attn_exp.rules.positions.position import Position


def order(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    return q, k, v


def source(side: str, x: Array, memory: Array) -> Array:
    return x if side == "q" else memory


def project(side: str, x: Array, arrays: Arrays) -> Array:
    """Return `x W + b`, `[... t n]`, with the W and b of `side`: "q", "k", "v" or "o"; `x W` if there is no b."""
    product = (x @ arrays[f"W_{side}"]).astype(x.dtype, copy=False)
    return product + arrays[f"b_{side}"][..., None, :] if f"b_{side}" in arrays else product


def split(flat: Array, count: int) -> Array:
    """Split `[... t h*d]` into heads `[... h t d]`: head i owns the columns from `i d` to `(i + 1) d`."""
    *leading, length, width = flat.shape
    return flat.reshape(*leading, length, count, width // count).swapaxes(-3, -2)


def place(setup: Any, side: str, heads: Array, positions: Sequence[Position]) -> Array:
    """Encode positions in queries and keys, but not in values.

    The first query is at the position `past` if there are past tokens, otherwise at `offset`.
    """
    if side == "v":
        return heads
    for position in positions:
        heads = encode_position(
            position, heads, (setup.past if setup.past else setup.rules.offset) if side == "q" else 0
        )
    return heads


def encode_position(position: Position, heads: Array, start: Any) -> Array:
    return position.turn(heads, np.arange(heads.shape[2]) + start)


def share(setup: Any, heads: Array) -> Array:
    """Give query head i the key/value head `i // (h / g)`."""
    if setup.groups == setup.heads:  # not read from the array, because a mistake may have moved its head axis
        return heads
    return repeat_heads(heads, setup.heads)


def share_in_turns(setup: Any, heads: Array) -> Array:
    """Give query head i the key/value head `i mod g`."""
    return heads[..., np.arange(setup.heads) % heads.shape[-3], :, :]


def repeat_heads(shared: Array, heads: int) -> Array:
    """Copy each key/value head for the query heads that read it, `[... g s d]` to `[... h s d]`."""
    groups = shared.shape[-3]
    return shared if groups == heads else np.repeat(shared, heads // groups, axis=-3)


def score(setup: Any, q: Array, k: Array) -> Array:
    """Return `q k^T`, `[... h t s]`, unless a score rule replaces it."""
    if setup.rules.pairing is not None:
        return np.asarray(setup.rules.pairing.pair(q, k, setup.grid.head))
    return product(q, k.swapaxes(-1, -2))


def product(left: Array, right: Array) -> Array:
    """Return the matrix product; half precision is summed in float32 and rounded once."""
    return np.asarray(widen(left) @ widen(right)).astype(np.result_type(left, right), copy=False)


def scaled(setup: Any, scores: Array) -> Array:
    """Return the scores times the scale, by default `1 / sqrt(d)`."""
    return np.asarray(scores * scores.dtype.type(setup.rules.scale))


def bent(setup: Any, logits: Array) -> Array:
    """Apply elementwise score rules, such as a soft-cap, to each logit."""
    for rule in setup.rules.scores:
        logits = rule.bend(logits)
    return logits


def biased(setup: Any, capped: Array) -> Array:
    for rule in setup.rules.scores:
        bias = rule.bias(setup.grid)
        capped = capped if bias is None else capped + np.asarray(bias).astype(capped.dtype)
    return capped


def allowed(setup: Any) -> Array:
    """Return which query-key pairs every mask allows, as booleans that broadcast to `[... h t s]`."""
    allowed_by_all = np.ones((1, 1, setup.rows, setup.keys) if setup.batched else (1, setup.rows, setup.keys), np.bool_)
    for mask in setup.rules.masks:
        allowed_by_all = allowed_by_all & mask.allows(setup.grid)
    return allowed_by_all


def forbid(setup: Any, logits: Array, allowed: Array) -> Array:
    # as in `np.where`, shapes that do not broadcast raise an error
    hides_nothing = allowed.all() and np.broadcast_shapes(allowed.shape, logits.shape) == logits.shape
    return logits if hides_nothing else np.where(allowed, logits, logits.dtype.type(-np.inf))


def normalize(setup: Any, masked: Array) -> Array:
    """Return the weights of each row, computed in the rules' softmax dtype; if all keys are masked, they are zeros."""
    logits = masked if setup.rules.softmax_dtype is None else masked.astype(setup.rules.softmax_dtype)
    return np.asarray(setup.rules.normalizer.weigh(logits, extra_logits(setup, logits))).astype(
        masked.dtype, copy=False
    )


def softmax(logits: Array, axis: int) -> Array:
    powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return np.asarray(powers / add_up(powers, axis))


def extra_logits(setup: Any, masked: Array) -> Array | None:
    """Return the extra logits of each head, which belong to no key, `[h 1 n]`; None if there are none."""
    extras = [logit for rule in setup.rules.scores if (logit := rule.extra(setup.grid.head)) is not None]
    return np.concatenate(extras, axis=-1).astype(masked.dtype) if extras else None


def after(setup: Any, weights: Array, allowed: Array) -> Array:
    """Return the weights unchanged; mistakes replace this step."""
    return weights


def mix(setup: Any, weights: Array, v: Array, k: Array) -> Array:
    """Return `weights v`, `[... h t e]`."""
    return weighted_sums(weights, v)


def weighted_sums(weights: Array, v: Array) -> Array:
    """Return `sum_j w_ij v_j`, `[... h t e]`, for values `[... h s e]`.

    A key of weight zero adds nothing, even if its value is NaN or infinite: `0 * NaN` would be NaN.
    """
    is_finite = np.isfinite(v)
    if is_finite.all():
        return product(weights, v)
    context = product(weights, np.where(is_finite, v, v.dtype.type(0)))
    for key in np.flatnonzero(~is_finite.all(axis=(*range(v.ndim - 2), -1))):
        weight, value = weights[..., key, None], np.where(is_finite, 0, v)[..., None, key, :]
        context = context + np.where(weight != 0, value, 0).astype(context.dtype)
    return context


def add_context(stages: Trace) -> Trace:
    """Return the trace with `context = weights v` added; without values there is no context."""
    if stages.v is None or stages.weights is None:
        return stages
    v = repeat_heads(stages.v, stages.weights.shape[-3])
    return stages.replace(context=weighted_sums(stages.weights, v))


def gather(setup: Any, context: Array) -> Array:
    """Return the contexts of the heads unchanged; mistakes replace this step."""
    return context


def merge(setup: Any, context: Array) -> Array:
    """Put the heads side by side, `[b h t e]` to `[b t h*e]`.

    Raises:
        ValueError: a mistake has dropped the head axis.
    """
    if context.ndim != 4:
        raise ValueError(f"expected heads [b h t e], got {context.shape}")
    return join_heads(context)


def join_heads(heads: Array) -> Array:
    """Merge heads `[... h t e]` into `[... t h*e]`, side by side."""
    *leading, count, length, width = heads.shape
    return heads.swapaxes(-3, -2).reshape(*leading, length, count * width)


def finish(setup: Any, merged: Array, weight: Array | None, bias: Array | None) -> Array:
    """Return `merged W_o + b_o`; leave out W_o or b_o if it is None."""
    output = merged if weight is None else merged @ weight
    return output if bias is None else output + bias
