"""Right functions in odd styles: every one must pass, whatever a checker asks by the keywords that it has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.zoo import wide_heads
from tests.zoo.case import Case

Array = NDArray[Any]


def softmax(logits: Array) -> Any:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def odd_letters(values: Array, keys: Array, queries: Array) -> dict[str, Array]:
    """Arguments in another order; a dictionary whose output does not come first."""
    scores = np.einsum("wvut,wvst->wvus", queries, keys) * queries.shape[-1] ** -0.5
    weights = softmax(scores)
    return {"scores": scores, "weights": weights, "output": np.einsum("wvus,wvst->wvut", weights, values)}


def powers_in_order(q: Array, k: Array, v: Array) -> Any:
    """Sums over keys sorted by their logits."""
    scores = (q @ k.swapaxes(-1, -2)) / np.sqrt(q.shape[-1])
    order = np.argsort(scores, axis=-1)
    sorted_scores = np.take_along_axis(scores, order, -1)
    weights = softmax(sorted_scores)
    values = np.take_along_axis(np.broadcast_to(v[..., None, :, :], (*order.shape, v.shape[-1])), order[..., None], -2)
    return np.asarray((weights[..., None] * values).sum(-2))


def by_tanh(q: Array, k: Array, v: Array) -> Any:
    """Shares against the largest: 1 / (sum of e^(l_j - l_i))."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    away = np.minimum(scores[..., None, :] - scores[..., :, None], 700.0)
    return np.asarray(1 / np.exp(away).sum(-1) @ v)


def quarter_turns(q: Array, k: Array, v: Array) -> Any:
    """Queries and keys turned alike by a random rotation: products stay."""
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((q.shape[-1],) * 2))[0]
    return softmax((q @ turn) @ (k @ turn).swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def constant_per_row(q: Array, k: Array, v: Array, attention_mask: Array | None = None) -> Any:
    """A constant is added to each row of logits; BERT's ones and zeros for the mask."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + np.arange(q.shape[-2])[:, None]
    if attention_mask is not None:
        scores = scores + (1.0 - attention_mask.astype(float)) * -1e5
    return softmax(scores) @ v


def mask_of_four_axes(q: Array, k: Array, v: Array, mask: Array | None = None) -> Any:
    """The mask is [b t s]; heads get the same."""
    scores = np.einsum("bhtd,bhsd->bhts", q, k) / np.sqrt(q.shape[-1])
    if mask is not None:
        batch, rows, keys = mask.shape
        scores = np.where(mask.reshape(batch, 1, rows, keys), scores, -1e30)
    return softmax(scores) @ v


def causal_unless_told(q: Array, k: Array, v: Array, is_causal: bool = True) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return softmax(np.where(np.tri(*scores.shape[-2:], dtype=np.bool_) | np.array(not is_causal), scores, -np.inf)) @ v


def refuses_a_window(q: Array, k: Array, v: Array, window_size: tuple[int, int] = (-1, -1)) -> Any:
    if window_size != (-1, -1):
        raise NotImplementedError("windows")
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def one_head(q: Array, k: Array, v: Array) -> Any:
    """Matrices alone: [t d]."""
    rows, keys = q.shape[0], k.shape[0]
    answer = np.zeros((rows, v.shape[1]))
    for row in range(rows):
        powers = np.exp(
            [q[row] @ k[key] / math.sqrt(len(q[row])) for key in range(keys)]
            - max(q[row] @ k.T) / math.sqrt(q.shape[1])
        )
        answer[row] = powers @ v / powers.sum()
    return answer


def square_alone(q: Array, k: Array, v: Array) -> Any:
    """Causal for as many queries as keys; others it does not take."""
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    hidden = np.triu(np.full((q.shape[-2], q.shape[-2]), -np.inf), 1)
    return softmax(scores + hidden) @ v


def short_alone(q: Array, k: Array, v: Array) -> Any:
    """At most 32 tokens, as a model's context has it."""
    seen = np.tri(32, dtype=np.bool_)[: q.shape[-2], : k.shape[-2]]
    return softmax(np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)) @ v


def narrow_type(q: Array, k: Array, v: Array) -> Any:
    """Answers in the type that came, sums in float64."""
    wide = [side.astype(np.float64) for side in (q, k, v)]
    return np.asarray(softmax(wide[0] @ wide[1].swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ wide[2]).astype(q.dtype)


def rope_by_matrix(q: Array, k: Array, v: Array) -> Any:
    """Rotary positions as one block matrix for each place."""
    size = q.shape[-1]
    speeds = 10000.0 ** (-np.arange(0, size, 2) / size)

    def turned(heads: Array) -> Any:
        rows = []
        for place in range(heads.shape[-2]):
            cos, sin = np.diag(np.cos(place * speeds)), np.diag(np.sin(place * speeds))
            rows.append(heads[..., place, :] @ np.block([[cos, sin], [-sin, cos]]))
        return np.stack(rows, -2)

    return softmax(turned(q) @ turned(k).swapaxes(-1, -2) / np.sqrt(size)) @ v


def sinks_subtracted(q: Array, k: Array, v: Array, sinks: Array | None = None) -> Any:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    sink = np.full((q.shape[1], 1, 1), -np.inf) if sinks is None else sinks.reshape(-1, 1, 1)
    top = np.maximum(scores.max(-1, keepdims=True), sink)
    powers = np.exp(scores - top)
    return np.asarray(powers / (powers.sum(-1, keepdims=True) + np.exp(sink - top)) @ v)


class Attention:
    """An object that is called; its scale is set before."""

    def __init__(self, size: int = 8) -> None:
        self.scale = 1 / math.sqrt(size)

    def __call__(self, query: Array, key: Array, value: Array) -> Any:
        return softmax(np.einsum("bhqc,bhkc->bhqk", query * self.scale, key)) @ value


def chosen(q: Array, k: Array, v: Array, temperature: float) -> Any:
    return softmax(q @ k.swapaxes(-1, -2) / temperature / np.sqrt(q.shape[-1])) @ v


def layer_of_heads(tokens: Array, wq: Array, wk: Array, wv: Array, wo: Array, n_heads: int, n_kv_heads: int) -> Any:
    """Shared heads, one at a time, each with its rows of W_o."""
    size, answer = wq.shape[1] // n_heads, np.zeros((len(tokens), wo.shape[1]))
    for head in range(n_heads):
        mine, shared = slice(head * size, (head + 1) * size), head // (n_heads // n_kv_heads)
        theirs = slice(shared * size, (shared + 1) * size)
        weights = softmax(tokens @ wq[:, mine] @ (tokens @ wk[:, theirs]).T / size**0.5)
        answer += weights @ tokens @ wv[:, theirs] @ wo[mine]
    return answer


def batched_layer(x: Array, W_q: Array, W_k: Array, W_v: Array, num_heads: int = 1) -> Mapping[str, Array]:
    """x [b t m]; no output projection."""
    batch, rows, _ = x.shape
    q, k, v = ((x @ matrix).reshape(batch, rows, num_heads, -1).transpose(0, 2, 1, 3) for matrix in (W_q, W_k, W_v))
    mixed = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
    return {"attn_output": mixed.transpose(0, 2, 1, 3).reshape(batch, rows, -1), "q": q}


RIGHT = [
    *wide_heads.RIGHT,
    Case("", odd_letters),
    Case("", powers_in_order),
    Case("", by_tanh),
    Case("", quarter_turns),
    Case("", constant_per_row),
    Case("", mask_of_four_axes),
    Case("", causal_unless_told),
    Case("", refuses_a_window),
    Case("", one_head, ("layout=td",)),
    Case("", one_head),
    Case("", square_alone, ("mask=causal",)),
    Case("", short_alone, ("mask=causal",)),
    Case("", narrow_type, ("dtype=float16",)),
    Case("", narrow_type, ("dtype=float32",)),
    Case("", rope_by_matrix, ("position=rope",)),
    Case("", sinks_subtracted),
    Case("", Attention()),
    Case("", partial(chosen, temperature=1.0)),
    Case("", layer_of_heads, ("head=6", "kv_head=2")),
    Case("", batched_layer, ("head=3",)),
]
