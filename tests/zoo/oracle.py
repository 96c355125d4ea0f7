"""What attention should give, by scalar loops in float64, for the words of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Asked:
    """What the words ask: None, False or 0 where they do not.

    `corner`: the last query stands beside the last key; `window`: keys before and after, -1 = all; `length`: keys that
    are no filler; `sink`: the logit that belongs to no key; `mean`: a row without keys is the mean of all values.
    """

    head: int = 1
    kv_head: int | None = None
    scale: float | None = None
    causal: bool = False
    corner: bool = False
    window: tuple[int, int] | None = None
    length: int | None = None
    position: str = "none"
    interleaved: bool = False
    alibi: bool = False
    cap: float | None = None
    sink: float | None = None
    bias: bool = False
    mean: bool = False


def asked(settings: tuple[str, ...]) -> Asked:
    words = dict(word.split("=", 1) for word in settings)
    masks, scores = words.get("mask", ""), words.get("score", "")
    sides = int(words.get("mask.window.left", 0)), int(words.get("mask.window.right", 0))
    return Asked(
        head=int(words.get("head", 1)),
        kv_head=int(words["kv_head"]) if "kv_head" in words else None,
        scale=float(words["scale"]) if "scale" in words else None,
        causal="causal" in masks,
        corner=words.get("align") == "bottom_right" or words.get("convention") == "flash",
        window=sides if "window" in masks else None,
        length=int(words["mask.padding.lengths"]) if "padding" in masks else None,
        position=words.get("position", "none"),
        interleaved=words.get("position.rope.interleaved") == "true",
        alibi="alibi" in scores,
        cap=float(words["score.softcap.cap"]) if "softcap" in scores else None,
        sink=float(words.get("score.sink.logit", 0)) if "sink" in scores else None,
        bias=words.get("bias") == "true",
        mean=words.get("convention") == "jax",
    )


def allowed(ask: Asked, t: int, s: int) -> Array:
    """Return which keys each query may see, `[t s]`."""
    keep = np.ones((t, s), bool)
    for i, j in np.ndindex(t, s):
        ahead = j - i - (s - t if ask.corner else 0)
        left, right = ask.window or (-1, -1)
        near = (left < 0 or ahead >= -left) and (right < 0 or ahead <= right)
        keep[i, j] = near and not (ask.causal and ahead > 0) and (ask.length is None or j < ask.length)
    return keep


def slopes(heads: int) -> list[float]:
    """The authors' slopes of ALiBi: those of the power of two below, then every second of the one above."""
    power = 1
    while power * 2 <= heads:
        power *= 2
    below = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    above = [2.0 ** (-8 * (i + 1) / (2 * power)) for i in range(2 * power)]
    return (below + above[::2])[:heads]


def turned(row: list[float], place: int, interleaved: bool) -> list[float]:
    """Turn the pairs of one row by `place / 10000^(2i / d)`."""
    size, result = len(row), list(row)
    for i in range(size // 2):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + size // 2)
        angle = place / 10000.0 ** (2 * i / size)
        result[a] = row[a] * math.cos(angle) - row[b] * math.sin(angle)
        result[b] = row[a] * math.sin(angle) + row[b] * math.cos(angle)
    return result


def placed(rows: Array, ask: Asked, first: int) -> list[list[float]]:
    lists: list[list[float]] = rows.astype(float).tolist()
    if ask.position != "rope":
        return lists
    return [turned(row, first + place, ask.interleaved) for place, row in enumerate(lists)]


def row(query: list[float], keys: list[list[float]], values: list[list[float]], ask: Asked, bias: list[Any]) -> Any:
    """One query's result; `bias` has a number for each key, or None where it may not be seen."""
    scale = 1 / math.sqrt(len(query)) if ask.scale is None else ask.scale
    if ask.mean and all(added is None for added in bias):
        return np.mean(values, axis=0)
    powers: list[float] = []
    for key, added in zip(keys, bias, strict=True):
        logit = scale * math.fsum(a * b for a, b in zip(query, key, strict=True))
        logit = logit if ask.cap is None else ask.cap * math.tanh(logit / ask.cap)
        powers.append(0.0 if added is None else math.exp(logit + added))
    total = math.fsum(powers) + (0.0 if ask.sink is None else math.exp(ask.sink))
    columns = zip(*values, strict=True)
    return [math.fsum(p * x for p, x in zip(powers, column, strict=True)) / (total or 1.0) for column in columns]


def attention(q: Array, k: Array, v: Array, ask: Asked, mask: Any = True) -> Array:
    """Return `[b h t e]` from `q` `[b h t d]`, `k` `[b g s d]`, `v` `[b g s e]`; `mask` True = may attend."""
    (batches, heads, t, _), (groups, s) = q.shape, k.shape[1:3]
    keep = np.broadcast_to(allowed(ask, t, s) & mask, (batches, heads, t, s))
    first = s - t if ask.corner else 0
    result = np.zeros((batches, heads, t, v.shape[3]))
    for b, h in np.ndindex(batches, heads):
        g = h // (heads // groups)
        queries, keys = placed(q[b, h], ask, first), placed(k[b, g], ask, 0)
        for i in range(t):
            slope = slopes(heads)[h] if ask.alibi else 0.0
            bias = [-slope * abs(j - i - first) if keep[b, h, i, j] else None for j in range(s)]
            result[b, h, i] = row(queries[i], keys, v[b, g].astype(float).tolist(), ask, bias)
    return result


def sinusoids(t: int, m: int) -> Array:
    table = np.zeros((t, m))
    for i, c in np.ndindex(t, m):
        angle = i / 10000.0 ** (2 * (c // 2) / m)
        table[i, c] = math.cos(angle) if c % 2 else math.sin(angle)
    return table


def layer(arrays: dict[str, Array], ask: Asked, mask: Any = True) -> Array:
    """Return `[t m]` from `x` `[t m]`, `W_q` `[m h*d]`, `W_k`, `W_v` and, where they are there, `W_o` and biases."""
    x = arrays["x"] + (sinusoids(*arrays["x"].shape) if ask.position == "sinusoidal" else 0)
    counts = {"q": ask.head, "k": ask.kv_head or ask.head, "v": ask.kv_head or ask.head}
    sides = {name: x @ arrays[f"W_{name}"] + arrays.get(f"b_{name}", 0) for name in counts}
    heads = {name: np.stack(np.split(sides[name], count, axis=1))[None] for name, count in counts.items()}
    context = np.concatenate(list(attention(heads["q"], heads["k"], heads["v"], ask, mask)[0]), axis=1)
    return context @ arrays["W_o"] + arrays.get("b_o", 0) if "W_o" in arrays else context
