"""Plain attention of few tokens: the expression of notebooks, whole heads at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

EPS = {np.dtype(kind): np.finfo(kind).eps for kind in (np.float32, np.float64)}

FEW = 1 << 13
"""Up to so many logits, one expression over the whole matrix is done before blocks are cut."""

ALONE = 1 << 16
"""Up to so many logits, waking a thread takes longer than it saves."""

UNHELD = 1 << 18
"""Up to so many multiplications, a product does not wake the BLAS's own threads."""

TILE = 1 << 22
"""Bytes of logits at a time, in each thread: a head whose logits take more is better cut into blocks."""

SKIPPED = 1 << 21
"""Bytes of all logits from which on blocks that skip what a causal mask forbids are quicker."""


def at_once(query: Any, key: Any, value: Any, scale: float | None, is_causal: bool = False) -> Array | None:
    """Return plain attention `[... t d]`, or None where anything at all is out of the ordinary.

    Cutting blocks costs about as much as attention among a hundred tokens. The largest logit is not subtracted: where
    sums overflow, or underflow as `block.trusted` has it, the answer is None as well.
    """
    if not ordinary(query, key, value):
        return None
    *heads, rows, size = query.shape
    keys, count = key.shape[-2], math.prod(heads)
    room, places = rows * keys * query.itemsize, count * rows * keys
    if room > TILE or (is_causal and not FEW < places <= SKIPPED // query.itemsize):
        return None  # few causal logits go to `matrix`, which is exact to the bit whatever masked keys hold
    factor = query.dtype.type(1 / math.sqrt(size) if scale is None else scale)
    context = np.empty((*heads, rows, value.shape[-1]), query.dtype)
    if places <= ALONE and rows * keys * size <= UNHELD:
        tile = np.empty((*heads, rows, keys), query.dtype)
        with np.errstate(all="ignore"):
            return context if mixed(query, key, value, factor, is_causal, tile, context) else None
    q, k, v, out = (each.reshape(count, *each.shape[-2:]) for each in (query, key, value, context))
    return context if side_by_side(q, k, v, factor, is_causal, out, TILE // room) else None


def ordinary(query: Any, key: Any, value: Any) -> bool:
    """Say whether these are arrays of one type and as many heads each, `[... t d]`, `[... s d]`, `[... s e]`."""
    if not (type(query) is type(key) is type(value) is np.ndarray and query.ndim == key.ndim == value.ndim in (2, 4)):
        return False
    if query.dtype not in EPS or not query.dtype is key.dtype is value.dtype:
        return False
    heads, keys, size = query.shape[:-2], key.shape[-2], query.shape[-1]
    fit = key.shape == (*heads, keys, size) and value.shape[:-1] == (*heads, keys)
    return fit and bool(query.size and keys and value.size)


def side_by_side(q: Array, k: Array, v: Array, factor: Any, is_causal: bool, context: Array, most: int) -> bool:
    """Mix heads `[h t d]` on several threads, at most so many at a time, and say whether all can be trusted.

    Where there are fewer heads than threads, blocks of queries do better: nothing is done, and nothing to be trusted.
    """
    from attn_exp.engine.blas import default_threads, one_blas_thread  # noqa: PLC0415 - three tokens need none of it
    from attn_exp.engine.threads import together  # noqa: PLC0415

    count, rows, keys = len(q), q.shape[1], k.shape[1]
    wanted = min(default_threads(), count * rows * keys // ALONE + 1)
    answers: list[bool] = []

    def work(tasks: Iterator[slice]) -> None:
        tile = np.empty((size, rows, keys), q.dtype)
        with np.errstate(all="ignore"):  # each thread starts with NumPy's defaults
            for some in tasks:
                logits = tile[: len(q[some])]
                answers.append(mixed(q[some], k[some], v[some], factor, is_causal, logits, context[some]))

    if count < wanted:
        return False
    with one_blas_thread(wanted) as granted:
        size = min(most, -(-count // granted))
        together(work, [slice(start, start + size) for start in range(0, count, size)], granted)
    return all(answers)


def mixed(q: Array, k: Array, v: Array, factor: Any, is_causal: bool, tile: Array, context: Array) -> bool:
    """Write `softmax(factor q k^T) v` into the context, its powers into the tile; say whether it can be trusted."""
    np.matmul(q * factor, turned(k, q.shape[-2]), out=tile)
    np.exp(tile, out=tile)
    if is_causal:
        tile *= np.tri(*tile.shape[-2:], dtype=tile.dtype)
    total = tile @ np.ones(tile.shape[-1], tile.dtype)
    np.matmul(tile, v, out=context)
    least, most = np.minimum.reduce(total, axis=None), np.maximum.reduce(total, axis=None)
    trusted = EPS[total.dtype] <= least and most < np.inf and np.isfinite(context).all()
    context /= total[..., None]
    return bool(trusted)


def turned(k: Array, rows: int) -> Array:
    """Return the keys `[... d s]`, copied where the products are so small that the BLAS takes them as they lie."""
    work = rows * k.shape[-2] * k.shape[-1]
    return np.ascontiguousarray(k.mT) if UNHELD // 4 < work <= UNHELD else k.mT
