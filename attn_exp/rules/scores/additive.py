"""Additive scores: query and key are added, not multiplied, and a vector reduces the sum to a score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from attn_exp.arrays import Array, draw, widen
from attn_exp.config.kinds import at_least
from attn_exp.rules.example import Example
from attn_exp.rules.grid import as_number_array
from attn_exp.rules.scores.score import Score


@dataclass(frozen=True, eq=False)
class Additive(Score):
    """`score_ij = v . tanh(q_i + k_j)` instead of `q_i . k_j`; W_q and W_k are the projections.

    `vector` is v `[d]`, or one v per head, `[h d]`. By default, it is drawn from N(0, 1) / sqrt(d), with the stream
    `additive` of `seed`. The authors do not scale the scores: use `scale=false` to reproduce their results.

    Source: Bahdanau, Cho, Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
    appendix A.1.2.
    """

    pairs = True

    vector: Any = None
    seed: Annotated[int, at_least(0, most=None)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vector is None:
            return
        vector = as_number_array(self.vector, "vector").astype(np.float64)
        if vector.ndim not in (1, 2) or not np.isfinite(vector).all():
            raise ValueError("vector must be a list of finite numbers, such as [1,2], or one such list per head")
        object.__setattr__(self, "vector", vector)

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        is_misfit = self.vector is not None and self.vector.ndim == 2 and len(self.vector) != heads
        return f"additive: vectors for {len(self.vector)} heads; expected {heads}" if is_misfit else None

    def misfit_size(self, size: int) -> str | None:
        is_misfit = self.vector is not None and self.vector.shape[-1] != size
        return f"additive: a vector of {self.vector.shape[-1]} numbers; expected d_head={size}" if is_misfit else None

    def weights(self, size: int, head: Array | int) -> Array:
        """Return v, `[d]` or `[h 1 1 d]`."""
        if self.vector is None:
            return draw(self.seed, "additive", "normal", (size,)) / math.sqrt(size)
        return np.asarray(self.vector if self.vector.ndim == 1 else self.vector[head])

    def pair(self, q: Array, k: Array, head: Array | int) -> Array:
        vector = self.weights(q.shape[-1], head).astype(q.dtype)
        total = np.zeros((*q.shape[:-1], k.shape[-2]), widen(vector).dtype)
        for feature in range(q.shape[-1]):  # one dimension at a time, so that no array is larger than the scores
            total += vector[..., feature] * np.tanh(q[..., :, None, feature] + k[..., None, :, feature])
        return total.astype(q.dtype, copy=False)

    def pair_twin(self, query: Sequence[float], key: Sequence[float], head: int) -> float:
        vector = self.weights(len(query), head).tolist()
        return math.fsum(v * math.tanh(q + k) for v, q, k in zip(vector, query, key, strict=True))


EXAMPLE = Example(
    settings={"vector": [1.0, 2.0]},
    given=((0.0, 0.0), (1.0, 0.0)),
    keys=((0.0, 0.0), (0.0, 1.0)),
    outcome=((0.0, 1.523188311911530), (0.761594155955765, 2.284782467867295)),  # multiples of tanh 1
    outside="computed from the paper's formula; it prints no scores",
)
