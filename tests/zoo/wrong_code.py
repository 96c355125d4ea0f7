"""Mistakes that only code makes: views for transposes, masks of other entries, factors, epsilons, norms inside."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.zoo.case import Case

Array = NDArray[Any]
Maybe = NDArray[Any] | None


def soft(logits: Array, axis: int | tuple[int, ...] = -1) -> Any:
    kept = np.where(np.isneginf(logits), -1e300, logits)
    powers = np.exp(kept - kept.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def raw(q: Array, k: Array) -> Any:
    return np.einsum("bhtd,bhsd->bhts", q, k)


def logits(q: Array, k: Array) -> Any:
    return raw(q, k) / np.sqrt(q.shape[-1])


# The scale


def tempered(q: Array, k: Array, v: Array) -> Any:
    return soft(logits(q, k) / 1.3) @ v


def eight(q: Array, k: Array, v: Array) -> Any:
    return soft(raw(q, k) / 8) @ v


def by_entries(q: Array, k: Array, v: Array) -> Any:
    return soft(raw(q, k) / q.shape[0] ** 0.5) @ v


def by_heads(q: Array, k: Array, v: Array) -> Any:
    return soft(raw(q, k) / q.shape[1]) @ v


def whole_numbers(q: Array, k: Array, v: Array) -> Any:
    return soft(raw(q, k) // np.sqrt(q.shape[-1])) @ v


def by_keys(q: Array, k: Array, v: Array) -> Any:
    return soft(raw(q, k) / k.shape[-2]) @ v


def by_queries(q: Array, k: Array, v: Array) -> Any:
    return soft(raw(q, k) / np.sqrt(q.shape[-2])) @ v


# Views and sides


def keys_by_view(q: Array, k: Array, v: Array) -> Any:
    batch, heads, length, size = k.shape
    return soft(q @ k.reshape(batch, heads, size, length) / np.sqrt(size)) @ v


def values_by_view(q: Array, k: Array, v: Array) -> Any:
    batch, heads, length, size = v.shape
    return np.einsum("bhts,bhes->bhte", soft(logits(q, k)), v.reshape(batch, heads, size, length))


def queries_alone(q: Array, k: Array, v: Array) -> Any:
    return soft(logits(q, q)) @ v


def keys_alone(q: Array, k: Array, v: Array) -> Any:
    return soft(logits(k, k)) @ v


def mixes_queries(q: Array, k: Array, v: Array) -> Any:
    return soft(logits(q, k)) @ q


def sums_alone(q: Array, k: Array, v: Array) -> Any:
    return soft(np.einsum("bhtd,bhse->bhts", q, k) / np.sqrt(q.shape[-1])) @ v


def each_by_itself(q: Array, k: Array, v: Array) -> Any:
    return np.einsum("bhts,bhje->bhte", soft(logits(q, k)), v)


def split(flat: Array, count: int) -> Any:
    return flat.reshape(len(flat), count, -1).swapaxes(0, 1)


def one_after_another(x: Array, W_q: Array, W_k: Array, W_v: Array, num_heads: int) -> Any:
    q = x @ W_q
    k = q @ W_k
    v = k @ W_v
    q, k, v = (split(side, num_heads) for side in (q, k, v))
    context = soft(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return context.swapaxes(0, 1).reshape(len(x), -1)


def of_x_itself(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    q = k = v = split(x, num_heads)
    context = soft(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return context.swapaxes(0, 1).reshape(len(x), -1) @ W_o


# The softmax


def heads_and_keys(q: Array, k: Array, v: Array) -> Any:
    return soft(logits(q, k), (1, 3)) @ v


def sums_along_the_keys(q: Any, k: Any, v: Any) -> Any:
    """As NumPy does it without keepdims: the sum of row j divides column j, which needs as many keys as queries."""
    powers = np.exp(logits(q, k) - logits(q, k).max(-1, keepdims=True))
    return powers / powers.sum(-1)[..., None, :] @ v


def one_top(q: Array, k: Array, v: Array) -> Any:
    powers = np.exp(logits(q, k) - logits(q, k).max())
    return powers / powers.sum(axis=-1, keepdims=True) @ v


def a_little_more(q: Array, k: Array, v: Array) -> Any:
    scores = logits(q, k)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / (powers.sum(axis=-1, keepdims=True) + 0.02) @ v


def highest_above_alone(q: Array, k: Array, v: Array) -> Any:
    scores = logits(q, k)
    return np.exp(scores - scores.max(axis=-1, keepdims=True)) / np.exp(scores).sum(axis=-1, keepdims=True) @ v


def keys_then_queries(q: Array, k: Array, v: Array) -> Any:
    return soft(soft(logits(q, k)), -2) @ v


# Heads and entries


def mean_weights(q: Array, k: Array, v: Array) -> Any:
    return soft(logits(q, k)).mean(axis=1, keepdims=True) @ v


def entries_for_heads(q: Array, k: Array, v: Array) -> Any:
    context = soft(logits(q, k)) @ v
    return context.swapaxes(0, 1).reshape(context.shape)


def with_queries(q: Array, k: Array, v: Array) -> Any:
    return q + soft(logits(q, k)) @ v


def cosines(q: Array, k: Array, v: Array) -> Any:
    q, k = (side / np.sqrt((side**2).mean(axis=-1, keepdims=True) + 1e-6) for side in (q, k))
    return soft(logits(q, k)) @ v


def own_share_alone(q: Array, k: Array, v: Array) -> Any:
    return np.einsum("bhss,bhsd->bhsd", soft(logits(q, k)), v)


def less_alike(q: Array, k: Array, v: Array) -> Any:
    return soft(-logits(q, k)) @ v


def through_the_values(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    q, k, v = (split(x @ side, num_heads) for side in (W_q, W_k, W_v))
    context = soft(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return context.swapaxes(0, 1).reshape(len(x), -1) @ W_v


def along_the_diagonal(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
    q, k, v = (split(x @ side, num_heads) for side in (W_q, W_k, W_v))
    context = soft(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return context.swapaxes(0, 1).reshape(len(x), -1) * W_o.diagonal()


# Masks


def taken_away(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    scores = logits(q, k)
    return soft(scores if mask is None else scores - mask) @ v


def not_of_whole_numbers(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    scores = logits(q, k)
    return soft(scores if mask is None else np.where(~mask.astype(int), -1e9, scores)) @ v


def of_the_first(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    scores = logits(q, k)
    if mask is not None and mask.ndim > 2:
        mask = mask[0]
    return soft(scores if mask is None else np.where(mask, scores, -np.inf)) @ v


def laid_in_turns(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
    batch, heads, rows, _ = q.shape
    scores = logits(q, k).reshape(batch * heads, rows, -1)
    if mask is not None and mask.ndim == 4 and mask.shape[1] > 1:
        scores = np.where(mask.reshape(scores.shape), scores, -np.inf)
    elif mask is not None and mask.ndim == 4:
        scores = np.where(np.tile(mask[:, 0], (heads, 1, 1)), scores, -np.inf)
    elif mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return soft(scores.reshape(batch, heads, rows, -1)) @ v


def filler_asks(q: Array, k: Array, v: Array, lengths: Maybe = None) -> Any:
    scores = logits(q, k)
    if lengths is not None:
        scores = np.where((np.arange(q.shape[2]) < lengths[:, None])[:, None, :, None], scores, -1e9)
    return soft(scores) @ v


def zeros_are_hidden(q: Array, k: Array, v: Array) -> Any:
    scores = np.tril(logits(q, k))
    return soft(np.where(scores == 0, -1e9, scores)) @ v


def first_mask(q: Array, k: Array, v: Array, mask: Maybe = None, kept: dict[Any, Any] = {}) -> Any:  # noqa: B006
    scores = logits(q, k)
    if mask is not None:
        scores = np.where(kept.setdefault(scores.shape, mask), scores, -np.inf)
    return soft(scores) @ v


# Keys


def as_many_keys_as_queries(q: Array, k: Array, v: Array) -> Any:
    rows = q.shape[-2]
    return soft(logits(q, k[..., :rows, :])) @ v[..., :rows, :]


CODE = [
    Case("scale_other", tempered),
    Case("scale_fixed", eight, source="right for heads of 64 numbers"),
    Case("scale_by_batch", by_entries),
    Case("scale_by_heads", by_heads),
    Case("scale_by_keys", by_keys),
    Case("scale_by_sqrt_queries", by_queries),
    Case("scores_floored", whole_numbers),
    Case("scores_of_sums", sums_alone),
    Case("values_summed", each_by_itself),
    Case("keys_viewed", keys_by_view, source="hyunwoongko/transformer"),
    Case("values_viewed", values_by_view),
    Case("keys_from_queries", queries_alone),
    Case("queries_from_keys", keys_alone),
    Case("values_from_queries", mixes_queries),
    Case("projected_twice", one_after_another, ("head=3",)),
    Case("projections_unused", of_x_itself, ("head=3",)),
    Case("softmax_over_heads_and_keys", heads_and_keys),
    Case("one_maximum", one_top),
    Case("keepdims_missing", sums_along_the_keys),
    Case("maximum_on_one_side", highest_above_alone),
    Case("sum_epsilon", a_little_more),
    Case("softmax_over_two_axes", keys_then_queries),
    Case("weights_averaged", mean_weights),
    Case("entries_and_heads_mixed", entries_for_heads),
    Case("residual_inside", with_queries),
    Case("norm_inside", cosines),
    Case("weights_diagonal", own_share_alone),
    Case("scores_negated", less_alike),
    Case("output_through_another", through_the_values, ("head=3",)),
    Case("projection_diagonal", along_the_diagonal, ("head=3",)),
    Case("mask_sign", taken_away),
    Case("mask_hides_all", not_of_whole_numbers),
    Case("mask_of_first_entry", of_the_first),
    Case("mask_tiled_over_heads", laid_in_turns),
    Case("padding_on_queries", filler_asks),
    Case("zero_scores_hidden", zeros_are_hidden, ("mask=causal",)),
    Case("mask_stale", first_mask),
    Case("keys_cut_to_queries", as_many_keys_as_queries),
]
"""One of each."""
