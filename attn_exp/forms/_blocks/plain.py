"""Plain attention for few tokens: the textbook expression, whole heads at a time.

`attend_at_once` computes a small problem in one expression, and a larger problem in a tile of working memory. If there
are many heads, it uses several threads, each for a tile of heads at a time. Everything else is left to the forms
`matrix` and `blockwise`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._blocks.operands import Memory, lend_memory

DTYPES = (np.dtype(np.float32), np.dtype(np.float64))

FEW_LOGITS = 1 << 13
"""Up to this many logits, one expression over the whole matrix is faster than cutting blocks (`attend_at_once`)."""

ONE_THREAD_LOGITS = 1 << 16
"""Up to this many logits, waking a second thread takes longer than it saves (`attend_heads`)."""

LOGITS_PER_KEY_READ = 12
"""Reading a key and its value from memory takes as long as computing this many logits."""

FREE_COPY_PRODUCT = 1 << 14
"""Up to this many multiplications, copying shared keys for each query head, as `matrix` does, costs nothing
(`attend_grouped`)."""

ONE_THREAD_PRODUCT = 1 << 18
"""Up to this many multiplications, BLAS computes a product without waking its own threads."""

TILE_BYTES = 1 << 22
"""Bytes of logits that a thread computes at a time; if one head has more, it is faster to cut it into blocks."""

SKIP_BYTES = 1 << 21
"""With more bytes of logits and a causal mask, it is faster to cut blocks, which skip masked keys."""


def attend_at_once(query: Any, key: Any, value: Any, scale: float | None, is_causal: bool = False) -> Array | None:
    """Return plain attention `[... t d]`, or None if another form is faster or more accurate.

    Cutting blocks costs about as much as attention among a hundred tokens. The largest logit is not subtracted here. If
    sums of exponentials overflow or lose precision, another form must compute the problem.
    """
    if not is_ordinary(query, key, value):
        return attend_grouped(query, key, value, scale) if not is_causal else None
    *heads, rows, size = query.shape
    keys, count = key.shape[-2], math.prod(heads)
    head_bytes, logit_count = rows * keys * query.itemsize, count * rows * keys
    if head_bytes > TILE_BYTES or (is_causal and not FEW_LOGITS < logit_count <= SKIP_BYTES // query.itemsize):
        return None  # few causal logits are left to `matrix`: its bits do not depend on what masked keys hold
    factor = query.dtype.type(1 / math.sqrt(size) if scale is None else scale)
    context = np.empty((*heads, rows, value.shape[-1]), query.dtype)
    # on one thread, without and with working memory; else on several threads
    if logit_count <= FEW_LOGITS and rows * keys * size <= ONE_THREAD_PRODUCT // 4:
        with np.errstate(all="ignore"):
            return context if attend_tile(query, key, value, factor, is_causal, None, context) else None
    if logit_count <= ONE_THREAD_LOGITS and rows * keys * size <= ONE_THREAD_PRODUCT:
        with np.errstate(all="ignore"), lend_memory() as memory:
            return context if attend_tile(query, key, value, factor, is_causal, memory, context) else None
    return context if attend_heads(query, key, value, factor, is_causal, context) else None


def is_ordinary(query: Any, key: Any, value: Any) -> bool:
    """Return whether the inputs are arrays of one dtype and head count: `[... t d]`, `[... s d]`, `[... s e]`."""
    if not (type(query) is type(key) is type(value) is np.ndarray and query.ndim == key.ndim == value.ndim in (2, 4)):
        return False
    if query.dtype not in DTYPES or not query.dtype is key.dtype is value.dtype:
        return False
    heads, keys, size = query.shape[:-2], key.shape[-2], query.shape[-1]
    fit = key.shape == (*heads, keys, size) and value.shape[:-1] == (*heads, keys)
    return fit and bool(query.size and keys and value.size)


def attend_grouped(query: Any, key: Any, value: Any, scale: float | None) -> Array | None:
    """Return plain attention for shared key/value heads, or None if another form is faster.

    The rows of all query heads that share a key/value head are put together as one head.
    """
    if not (type(query) is type(key) is np.ndarray and query.ndim == key.ndim == 4 and key.size):
        return None
    batches, heads, rows, size = query.shape
    groups, keys = key.shape[1:3]
    joined_rows, logit_count = heads // groups * rows, batches * heads * rows * keys
    if heads == groups or heads % groups or not 0 < joined_rows * keys * size <= ONE_THREAD_PRODUCT:
        return None
    if logit_count * size <= FREE_COPY_PRODUCT or logit_count > ONE_THREAD_LOGITS:
        return None
    context = attend_at_once(query.reshape(batches, groups, joined_rows, size), key, value, scale)
    return None if context is None else context.reshape(batches, heads, rows, context.shape[-1])


def attend_heads(query: Array, key: Array, value: Array, factor: Any, is_causal: bool, context: Array) -> bool:
    """Write the context of all heads, computed on several threads; return whether all of it can be trusted.

    If there are fewer heads than useful threads, nothing is computed and the result is False, because blocks of queries
    are faster.
    """
    from attn_exp.forms._blocks.threads import (  # noqa: PLC0415 - three tokens need no threads
        default_threads,
        one_blas_thread,
        run_together,
    )

    count, rows, keys = math.prod(query.shape[:-2]), query.shape[-2], key.shape[-2]
    # enough threads for the logits, and enough to read the keys
    wanted = min(
        default_threads(),
        max(count * rows * keys // ONE_THREAD_LOGITS + 1, count * keys * LOGITS_PER_KEY_READ // ONE_THREAD_LOGITS),
    )
    if count < wanted:
        return False
    q, k, v, out = (array.reshape(count, *array.shape[-2:]) for array in (query, key, value, context))
    trusted = []

    def work(tasks: Iterator[slice]) -> None:
        with np.errstate(all="ignore"), lend_memory() as memory:  # each thread starts with NumPy's defaults
            for heads_slice in tasks:
                memory.begin()
                trusted.append(
                    attend_tile(
                        q[heads_slice], k[heads_slice], v[heads_slice], factor, is_causal, memory, out[heads_slice]
                    )
                )

    with one_blas_thread(wanted) as granted:
        size = min(TILE_BYTES // (rows * keys * q.itemsize), -(-count // granted))
        run_together(work, [slice(start, start + size) for start in range(0, count, size)], granted)
    return all(trusted)


def attend_tile(
    q: Array, k: Array, v: Array, factor: Any, is_causal: bool, memory: Memory | None, context: Array
) -> bool:
    """Write `softmax(factor q k^T) v` into the context, and return whether it can be trusted.

    `memory` is None for small arrays: allocating them is faster than cutting them from working memory.
    """
    if memory is None:
        tile = np.matmul(q * factor, k.mT)
    else:
        tile = memory.array((*q.shape[:-1], k.shape[-2]), q.dtype)
        multiply_scaled(q, k, factor, memory, tile)
    np.exp(tile, out=tile)
    if is_causal:
        tile *= np.tri(*tile.shape[-2:], dtype=tile.dtype)
    total = tile @ np.ones(tile.shape[-1], tile.dtype)
    if not keeps_precision(total):
        return False
    np.matmul(tile, v, out=context)
    is_trusted = all_finite(context)
    context /= total[..., None]
    return is_trusted


def all_finite(array: Array) -> bool:
    """Return whether all numbers are finite; minimum and maximum propagate NaN."""
    if array.size <= FEW_LOGITS:
        return bool(np.isfinite(array).all())
    least, most = np.minimum.reduce(array, axis=None, initial=0), np.maximum.reduce(array, axis=None, initial=0)
    return bool(-np.inf < least and most < np.inf)


def keeps_precision(total: Array) -> bool:
    """Return whether sums of exponentials kept full precision although the largest logit was not subtracted.

    Each sum must be finite and at least eps. If it is, powers that underflow can be ignored: together they are smaller
    than the smallest normal number times the number of keys.
    """
    least, most = np.minimum.reduce(total, axis=None, initial=np.inf), np.maximum.reduce(total, axis=None, initial=0)
    return bool(np.finfo(total.dtype).eps <= least and most < np.inf)


def multiply_scaled(q: Array, k: Array, factor: Any, memory: Memory, tile: Array) -> None:
    """Write `factor q k^T` into a tile; if the product is medium-sized, scaling a transposed copy of k is faster."""
    keys = k.mT
    if ONE_THREAD_PRODUCT // 4 < q.shape[-2] * keys.shape[-1] * keys.shape[-2] <= ONE_THREAD_PRODUCT:
        np.matmul(q, np.multiply(keys, factor, out=memory.array(keys.shape, k.dtype)), out=tile)
    else:
        np.matmul(np.multiply(q, factor, out=memory.array(q.shape, q.dtype)), keys, out=tile)
