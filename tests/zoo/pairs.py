"""Functions with two of the fifteen commonest mistakes at once, made by one writer who can switch each of them on.

Left out: scales that contradict each other, a causal mask both ignored and strict, and three pairs that are a third,
single mistake: of softmax over queries, transposed weights and swapped queries and keys, any two give the one that is
left, because softmax over the rows of the transposed scores is softmax over the columns, transposed.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.zoo.case import Case

Array = NDArray[Any]
Maybe = NDArray[Any] | None
Flags = frozenset[str]

SCALES = ("no_scale", "scale_by_d", "scale_by_sqrt_d_model")
THIRDS = ("softmax_over_queries", "weights_transposed", "queries_keys_swapped")
MASKS = ("mask_inverted", "mask_after_softmax")
CAUSAL = ("causal_ignored", "causal_strict")
LAYERS = ("heads_not_transposed", "heads_merged_wrong", "no_output_projection")
COMMONEST = (*SCALES, *THIRDS, *MASKS, *CAUSAL, *LAYERS, "kv_heads_tiled", "rope_pairing")


def rotary(x: Array, flags: Flags) -> Any:
    """Turn a head's numbers, where `rope` is among the flags: pairs side by side if mistaken, else halves."""
    if "rope" not in flags:
        return x
    n, d = x.shape[-2:]
    wave = np.exp(1j * np.outer(np.arange(n), 10000.0 ** (-np.arange(0, d, 2) / d)))
    if "rope_pairing" not in flags:
        z = (x[..., : d // 2] + 1j * x[..., d // 2 :]) * wave
        return np.concatenate([z.real, z.imag], axis=-1)
    z = (x[..., ::2] + 1j * x[..., 1::2]) * wave
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)


def factor(q: Array, flags: Flags) -> Any:
    h, _, d = q.shape[-3:]
    if "no_scale" in flags:
        return 1.0
    if "scale_by_d" in flags:
        return 1 / d
    return (h * d if "scale_by_sqrt_d_model" in flags else d) ** -0.5


def visible(t: int, s: int, mask: Maybe, causal: bool, flags: Flags) -> Any:
    keep = np.ones((t, s), bool)
    if causal and "causal_ignored" not in flags:
        keep = np.tril(keep, -1 if "causal_strict" in flags else 0)
    if mask is not None:
        keep = keep & (~mask if "mask_inverted" in flags else mask)
    return keep


def softmax(s: Array, axis: int) -> Any:
    top = s.max(axis=axis, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=axis, keepdims=True)
    return e / np.where(total == 0, 1, total)


def mix(q: Array, k: Array, v: Array, keep: Array, flags: Flags) -> Any:
    times = q.shape[-3] // k.shape[-3]
    spread = [np.concatenate([a] * times, -3) if "kv_heads_tiled" in flags else np.repeat(a, times, -3) for a in (k, v)]
    q, k, v = rotary(q, flags), rotary(spread[0], flags), spread[1]
    left, right = (k, q) if "queries_keys_swapped" in flags else (q, k)
    s = left @ right.swapaxes(-1, -2) * factor(q, flags)
    late = "mask_after_softmax" in flags
    w = softmax(s if late else np.where(keep, s, -np.inf), -2 if "softmax_over_queries" in flags else -1)
    w = np.where(keep, w, 0) if late else w
    return (w.swapaxes(-1, -2) if "weights_transposed" in flags else w) @ v


def split(a: Array, heads: int, flags: Flags) -> Any:
    if "heads_not_transposed" in flags:
        return a.reshape(heads, len(a), -1)
    return a.reshape(len(a), heads, -1).swapaxes(0, 1)


def run_layer(x: Array, W: tuple[Array, ...], counts: tuple[int, int], keep: Array, flags: Flags) -> Any:
    q, k, v = (split(x @ m, n, flags) for m, n in zip(W, (counts[0], counts[1], counts[1]), strict=False))
    z = mix(q, k, v, keep, flags)
    z = z if "heads_merged_wrong" in flags else z.swapaxes(0, 1)
    merged = z.reshape(len(x), -1)
    return merged if "no_output_projection" in flags else merged @ W[3]


def core(flags: Flags, clothes: Flags) -> Any:
    """Return a function on q, k, v that has the keywords that `clothes` are about, and no other."""
    masked, causal = bool(clothes & set(MASKS)), bool(clothes & set(CAUSAL))

    def plain(q: Array, k: Array, v: Array) -> Any:
        return mix(q, k, v, np.array(True), flags)

    def with_mask(q: Array, k: Array, v: Array, mask: Maybe = None) -> Any:
        return mix(q, k, v, visible(q.shape[2], k.shape[2], mask, False, flags), flags)

    def with_causal(q: Array, k: Array, v: Array, is_causal: bool = False) -> Any:
        return mix(q, k, v, visible(q.shape[2], k.shape[2], None, is_causal, flags), flags)

    def with_both(q: Array, k: Array, v: Array, mask: Maybe = None, is_causal: bool = False) -> Any:
        return mix(q, k, v, visible(q.shape[2], k.shape[2], mask, is_causal, flags), flags)

    return ((plain, with_causal), (with_mask, with_both))[masked][causal]


def layer(flags: Flags, clothes: Flags) -> Any:
    """Return a function on x and matrices; a causal mask that it is meant to have needs no keyword."""
    causal = bool(clothes & set(CAUSAL))

    def plain(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int) -> Any:
        keep = visible(len(x), len(x), None, causal, flags)
        return run_layer(x, (W_q, W_k, W_v, W_o), (num_heads, num_heads), keep, flags)

    def masked(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int, mask: Maybe = None) -> Any:
        keep = visible(len(x), len(x), mask, causal, flags)
        return run_layer(x, (W_q, W_k, W_v, W_o), (num_heads, num_heads), keep, flags)

    def grouped(x: Array, W_q: Array, W_k: Array, W_v: Array, W_o: Array, num_heads: int, num_kv_heads: int) -> Any:
        keep = visible(len(x), len(x), None, causal, flags)
        return run_layer(x, (W_q, W_k, W_v, W_o), (num_heads, num_kv_heads), keep, flags)

    if clothes & set(MASKS):
        return masked
    return grouped if "kv_heads_tiled" in clothes else plain


def settings(clothes: Flags) -> tuple[str, ...]:
    shared = "kv_head=2" if "kv_heads_tiled" in clothes else ""
    heads = ("head=4" if shared else "head=3") if clothes & set(LAYERS) else ""
    causal = "mask=causal" if clothes & set(CAUSAL) else ""
    rope = "position=rope" if "rope_pairing" in clothes else ""
    return tuple(word for word in (causal, heads, shared, rope) if word)


def dressed(flags: Flags, clothes: Flags) -> Any:
    """Return a function with the mistakes `flags`, and with all that a function with the mistakes `clothes` takes."""
    inside = flags | {"rope"} if "rope_pairing" in clothes else flags
    return layer(inside, clothes) if clothes & set(LAYERS) else core(inside, clothes)


def made(*mistakes: str) -> Case:
    """Return the function with these mistakes: none, one or several."""
    flags = frozenset(mistakes)
    return Case("+".join(mistakes), dressed(flags, flags), settings(flags))


def sensible(pair: tuple[str, str]) -> bool:
    return not any(set(pair) <= set(names) for names in (SCALES, THIRDS, CAUSAL))


PAIRS = [made(*pair) for pair in combinations(COMMONEST, 2) if sensible(pair)]
