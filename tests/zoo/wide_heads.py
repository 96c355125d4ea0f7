"""Functions whose heads lie side by side, `[b t h*d]`, cut by a keyword that counts them: right and wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.zoo.case import Case

Array = NDArray[Any]


def weights(q: Array, k: Array, size: int) -> Array:
    logits = np.einsum("...td,...sd->...ts", q, k) / math.sqrt(size)
    powers = np.exp(logits - logits.max(-1)[..., None])
    return np.asarray(powers / powers.sum(-1)[..., None])


def by_columns(q: Array, k: Array, v: Array, num_heads: int) -> Array:
    size = q.shape[-1] // num_heads
    own = [slice(head * size, (head + 1) * size) for head in range(num_heads)]
    return np.concatenate([weights(q[..., at], k[..., at], size) @ v[..., at] for at in own], axis=-1)


def grouped(q: Array, k: Array, v: Array, n_heads: int, n_kv_heads: int) -> Array:
    size, share = q.shape[-1] // n_heads, n_heads // n_kv_heads
    out = np.empty((*q.shape[:2], n_heads * size))
    for head in range(n_heads):
        mine, theirs = (slice(at * size, (at + 1) * size) for at in (head, head // share))
        out[..., mine] = weights(q[..., mine], k[..., theirs], size) @ v[..., theirs]
    return out


def of_the_model(q: Array, k: Array, v: Array, num_heads: int) -> Array:
    q, k, v = (side.reshape(*side.shape[:2], num_heads, -1).swapaxes(1, 2) for side in (q, k, v))
    mixed = weights(q, k, num_heads * q.shape[-1]) @ v
    return np.asarray(mixed.swapaxes(1, 2).reshape(*q.shape[:1], q.shape[2], -1))


def only_seen(q: Array, k: Array, v: Array, num_heads: int = 2) -> Array:
    cut = [side.reshape(len(side), num_heads, side.shape[1], -1) for side in (q, k, v)]
    mixed = weights(cut[0], cut[1], cut[0].shape[-1]) @ cut[2]
    return np.asarray(mixed.reshape(q.shape))


def every_second(q: Array, k: Array, v: Array, heads: int) -> Array:
    out = np.empty((*q.shape[:2], v.shape[-1]))
    for head in range(heads):
        mine, keys = q[..., head::heads], k[..., head::heads]
        out[..., head::heads] = weights(mine, keys, mine.shape[-1]) @ v[..., head::heads]
    return out


def groups_in_turn(q: Array, k: Array, v: Array, num_heads: int, num_kv_heads: int) -> Array:
    size = q.shape[-1] // num_heads
    cut = [np.stack(np.split(side, side.shape[-1] // size, axis=-1), axis=1) for side in (q, k, v)]
    turns = [np.concatenate([side] * (num_heads // num_kv_heads), axis=1) for side in cut[1:]]
    mixed = weights(cut[0], turns[0], size) @ turns[1]
    return np.concatenate(list(mixed.swapaxes(0, 1)), axis=-1)


WRONG = [
    Case("scale_by_sqrt_d_model", of_the_model),
    Case("heads_not_transposed", only_seen),
    Case("heads_by_stride", every_second),
    Case("kv_heads_tiled", groups_in_turn),
]
RIGHT = [
    Case("", by_columns),
    Case("", by_columns, ("layout=btm", "head=4")),
    Case("", grouped),
]
