"""Wrong functions in NumPy, in styles that the others do not have: odd letters, tiles, running sums, dictionaries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def softmax(logits: Array, axis: int = -1) -> Any:
    powers = np.exp(logits - logits.max(axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis, keepdims=True))


def odd_letters(queries: Array, keys: Array, values: Array) -> dict[str, Array]:
    """No scale; [b t h d], which the letters say."""
    weights = softmax(np.einsum("zixc,zjxc->zxij", queries, keys))
    return {"weights": weights, "out": np.einsum("zxij,zjxc->zixc", weights, values)}


def ones_by_hand(query: Array, key: Array, value: Array) -> tuple[Array, Array]:
    """Divided by d, [h t d], one row at a time; returns the weights too."""
    heads, rows, size = query.shape
    weights = np.empty((heads, rows, key.shape[1]))
    for head, row in np.ndindex(heads, rows):
        weights[head, row] = softmax(key[head] @ query[head, row] / size)
    return weights @ value, weights


def flash_running(Q: Array, K: Array, V: Array, block: int = 3) -> Any:
    """Online softmax, scaled by the root of the number of keys."""
    top, total, mixed = -np.inf, 0.0, np.zeros(())
    for start in range(0, K.shape[-2], block):
        scores = Q @ K[..., start : start + block, :].swapaxes(-1, -2) / math.sqrt(K.shape[-2])
        new = np.maximum(top, scores.max(-1, keepdims=True))
        powers, shrink = np.exp(scores - new), np.exp(top - new)
        mixed = mixed * shrink + powers @ V[..., start : start + block, :]
        total, top = total * shrink + powers.sum(-1, keepdims=True), new
    return np.asarray(mixed / total)


def running_without_rescaling(q: Array, k: Array, v: Array) -> Any:
    """Online sums in powers of two."""
    best, below, above = np.full((*q.shape[:-1], 1), -np.inf), 0.0, np.zeros(())
    for key in range(k.shape[-2]):
        score = (q * k[..., key : key + 1, :]).sum(-1, keepdims=True) * q.shape[-1] ** -0.5
        new = np.maximum(best, score)
        above = above * 2.0 ** (best - new) + 2.0 ** (score - new) * v[..., key : key + 1, :]
        below, best = below * 2.0 ** (best - new) + 2.0 ** (score - new), new
    return np.asarray(above / below)


def cumulative(q: Array, k: Array, v: Array) -> Any:
    """Causal by running sums over keys of one query block; key i + 1 is seen too."""
    scores = np.einsum("...id,...jd->...ij", q, k) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max())
    upto = np.minimum(np.arange(q.shape[-2]) + 1, k.shape[-2] - 1)
    sums = np.cumsum(powers, axis=-1)
    mixed = np.cumsum(powers[..., None] * v[..., None, :, :], axis=-2)
    rows = np.arange(q.shape[-2])
    return np.asarray(mixed[..., rows, upto, :] / sums[..., rows, upto][..., None])


def log_space(q: Array, k: Array, v: Array) -> Any:
    """log-sum-exp over the queries instead of the keys."""
    scores = np.matmul(q, np.moveaxis(k, -1, -2)) / np.sqrt(np.float64(q.shape[-1]))
    return np.asarray(np.exp(scores - np.logaddexp.reduce(scores, axis=-2, keepdims=True)) @ v)


def tiles(q: Array, k: Array, v: Array, tile: int = 4) -> Any:
    """Tiles of queries and keys, the last queries lost: whole tiles alone."""
    answer = np.zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, q.shape[-2] // tile * tile, tile):
        rows = slice(start, start + tile)
        answer[..., rows, :] = softmax(q[..., rows, :] @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v
    return answer


def lists(q: Array, k: Array, v: Array) -> list[list[float]]:
    """Plain lists, one head; weights are used the other way round."""
    size = len(q[0])
    scores = [[sum(a * b for a, b in zip(x, y, strict=True)) / size**0.5 for y in k] for x in q]
    powers = [[math.exp(score - max(row)) for score in row] for row in scores]
    weights = [[power / sum(row) for power in row] for row in powers]
    columns = list(zip(*weights, strict=True))
    mixed = [[sum(w * y[c] for w, y in zip(column, v, strict=True)) for c in range(len(v[0]))] for column in columns]
    return np.array(mixed)  # type: ignore[return-value]  # a list was meant, an array is handed out


def hidden_with_large_steps(query: Array, key: Array, value: Array, attention_mask: Array | None = None) -> Any:
    """BERT's (1 - mask) times a number, of -5."""
    scores = np.einsum("bnqc,bnkc->bnqk", query, key) / math.sqrt(query.shape[-1])
    if attention_mask is not None:
        scores = scores + (1.0 - attention_mask) * -5.0
    return np.einsum("bnqk,bnkc->bnqc", softmax(scores), value)


def forgets_not(q: Array, k: Array, v: Array, attn_mask: Array | None = None) -> Any:
    """True hides, as nn.MultiheadAttention has it."""
    scores = q @ k.swapaxes(2, 3) * q.shape[-1] ** -0.5
    if attn_mask is not None:
        scores = np.ma.masked_array(scores, np.broadcast_to(attn_mask, scores.shape)).filled(-1e300)
    return softmax(scores) @ v


def zeroed_after(q: Array, k: Array, v: Array, mask: Array | None = None, sm_scale: float | None = None) -> Any:
    """The mask multiplies the weights."""
    factor = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    weights = softmax(factor * (q @ k.swapaxes(-1, -2)))
    return np.asarray((weights if mask is None else np.multiply(weights, mask)) @ v)


def multiplies_before(queries: Array, keys: Array, values: Array, mask: Array | None = None) -> Any:
    """Logits times 0 or 1."""
    scores = np.einsum("...ab,...cb->...ac", queries, keys) / np.sqrt(keys.shape[-1])
    return softmax(scores if mask is None else scores * mask) @ values


def mask_turned(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(scores if mask is None else np.where(np.asarray(mask).swapaxes(-1, -2), scores, -1e9)) @ v


def last_diagonal(q: Array, k: Array, v: Array, causal: bool = False) -> Any:
    """Does not see itself: range(row) instead of range(row + 1)."""
    answer = np.zeros(q.shape)
    for batch, head, row in np.ndindex(q.shape[:3]):
        keys = range(row if causal else k.shape[2])
        powers = [math.exp(q[batch, head, row] @ k[batch, head, key] / math.sqrt(q.shape[3])) for key in keys]
        for power, key in zip(powers, keys, strict=True):
            answer[batch, head, row] += power / sum(powers) * v[batch, head, key]
    return answer


def future_alone(q: Array, k: Array, v: Array, use_causal_mask: bool = False) -> Any:
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if use_causal_mask:
        scores += np.tril(np.full(scores.shape[-2:], -1e12), -1)
    return softmax(scores) @ v


def wide_window(q: Array, k: Array, v: Array, window_size: tuple[int, int] = (-1, -1)) -> Any:
    """One key more on the left than was asked."""
    before, behind = window_size
    away = np.arange(k.shape[-2])[None, :] - np.arange(q.shape[-2])[:, None]
    seen = ((before < 0) | (away >= -before - 1)) & ((behind < 0) | (away <= behind))
    return softmax(np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)) @ v


def narrow_band(q: Array, k: Array, v: Array) -> Any:
    """A window of 3 keys before, cut by slices that are one short."""
    rows = []
    for row in range(q.shape[-2]):
        near = slice(max(row - 2, 0), row + 1)
        rows.append(
            softmax(q[..., row : row + 1, :] @ k[..., near, :].swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v[..., near, :]
        )
    return np.concatenate(rows, -2)


def filler_seen(q: Array, k: Array, v: Array, kv_lengths: Array | None = None) -> Any:
    """`<=` for `<`: one key of filler is seen."""
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) * (1 / q.shape[-1] ** 0.5)
    if kv_lengths is not None:
        seen = np.arange(k.shape[2]) <= np.reshape(kv_lengths, (-1, 1))
        scores = np.where(seen[:, None, None], scores, np.finfo(scores.dtype).min)
    return np.einsum("bhqk,bhkd->bhqd", softmax(scores), v)


def capped_late(q: Array, k: Array, v: Array, mask: Array | None = None, logit_cap: float = 0.0) -> Any:
    """The cap after the mask: hidden keys get -cap and weight."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = scores if mask is None else np.where(mask, scores, -1e30)
    return softmax(np.tanh(scores / logit_cap) * logit_cap if logit_cap else scores) @ v


def capped_raw(q: Array, k: Array, v: Array) -> Any:
    """The cap of 2 before the scale."""
    return softmax(2 * np.tanh(q @ k.swapaxes(-1, -2) / 2) / np.sqrt(q.shape[-1])) @ v


def far_is_near(q: Array, k: Array, v: Array, slopes: Array | None = None) -> Any:
    """ALiBi that rewards distance."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if slopes is not None:
        away = abs(np.subtract.outer(np.arange(q.shape[-2]), np.arange(k.shape[-2])))
        scores = scores + np.multiply.outer(slopes, away)
    return softmax(scores) @ v


def slopes_by_count(q: Array, k: Array, v: Array) -> Any:
    """Slopes 2^(-i) for every number of heads."""
    away = -abs(np.subtract.outer(np.arange(q.shape[-2]), np.arange(k.shape[-2])))
    bias = np.array([away * 2.0 ** -(head + 1) for head in range(q.shape[1])])
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias) @ v


def complex_rope(q: Array, k: Array, v: Array) -> Any:
    """RoPE of neighbours, as complex numbers, where halves were meant."""
    turns = np.exp(1j * np.arange(q.shape[-2])[:, None] * 10000.0 ** (-np.arange(0, q.shape[-1], 2) / q.shape[-1]))

    def turned(heads: Array) -> Any:
        points = (heads[..., ::2] + 1j * heads[..., 1::2]) * turns[: heads.shape[-2]]
        return np.stack([points.real, points.imag], -1).reshape(heads.shape)

    return softmax(turned(q) @ turned(k).swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v


def cached_rope(q: Array, k: Array, v: Array) -> Any:
    """Keys were put in a cache that counts from 1."""
    size, rows = q.shape[-1], np.arange(q.shape[-2])
    speeds = 1 / 10000 ** (np.arange(size // 2) * 2 / size)

    def turned(heads: Array, places: Array) -> Any:
        one, two = np.split(heads, 2, axis=-1)
        cos, sin = np.cos(np.outer(places, speeds)), np.sin(np.outer(places, speeds))
        return np.concatenate([one * cos - two * sin, two * cos + one * sin], -1)

    return softmax(turned(q, rows) @ turned(k, np.arange(1, k.shape[-2] + 1)).swapaxes(-1, -2) / size**0.5) @ v


def groups_in_turn(q: Array, k: Array, v: Array) -> Any:
    """Query head i reads key/value head i mod g."""
    return np.stack(
        [
            softmax(q[:, head] @ k[:, head % k.shape[1]].swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
            @ v[:, head % v.shape[1]]
            for head in range(q.shape[1])
        ],
        1,
    )


def split_by_stride(x: Array, wq: Array, wk: Array, wv: Array, wo: Array, n_heads: int) -> Any:
    """Head i takes every n-th column."""
    parts = [
        softmax((x @ wq)[:, i::n_heads] @ (x @ wk)[:, i::n_heads].T / (wq.shape[1] / n_heads) ** 0.5)
        for i in range(n_heads)
    ]
    mixed = np.empty((len(x), wv.shape[1]))
    for head, weights in enumerate(parts):
        mixed[:, head::n_heads] = weights @ (x @ wv)[:, head::n_heads]
    return mixed @ wo


def one_large_head(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int = 1) -> Any:
    """num_heads scales but does not split."""
    return softmax((x @ W_q) @ (x @ W_k).T / np.sqrt(W_q.shape[1] // num_heads)) @ (x @ W_v) @ W_o


def biases_forgotten(
    inputs: Array, query_weight: Array, key_weight: Array, value_weight: Array, query_bias: Array, key_bias: Array,
    value_bias: Array,
) -> Any:  # fmt: skip
    """The bias of the values alone is forgotten."""
    q, k = inputs @ query_weight + query_bias, inputs @ key_weight + key_bias
    return softmax(q @ k.T / np.sqrt(k.shape[1])) @ (inputs @ value_weight)


def matrices_as_torch_has_them(x: Array, W_q: Array, W_k: Array, W_v: Array) -> Any:
    """x W^T, as nn.Linear stores its weight."""
    q, k, v = (np.einsum("ti,oi->to", x, matrix) for matrix in (W_q, W_k, W_v))
    return softmax(q @ k.T / np.sqrt(q.shape[1])) @ v


def shares_of_scores(q: Array, k: Array, v: Array) -> Any:
    """Scores over their sum: no exponent."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return np.asarray(np.divide(scores, scores.sum(axis=-1)[..., np.newaxis]) @ v)


def softmax_of_softmax(q: Array, k: Array, v: Array, is_causal: bool = False) -> Any:
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf) if is_causal else scores
    return softmax(softmax(scores)) @ v


def scaled_weights(q: Array, k: Array, v: Array) -> Any:
    """The scale comes after the softmax."""
    return np.asarray(softmax(q @ k.swapaxes(-1, -2)) / math.sqrt(q.shape[-1]) @ v)


def every_place(q: Array, k: Array, v: Array) -> Any:
    """One softmax over the flat matrix of each head."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return np.asarray(softmax(scores.reshape(*scores.shape[:2], -1)).reshape(scores.shape) @ v)


def half_table(q: Array, k: Array, v: Array) -> Any:
    """The softmax is in float16."""
    scores = (np.matmul(q, k.swapaxes(-1, -2)) / np.sqrt(q.shape[-1])).astype(np.float16)
    return np.asarray(softmax(scores).astype(v.dtype) @ v)
