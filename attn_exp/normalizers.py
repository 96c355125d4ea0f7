"""What turns a row of masked logits into weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_exp.rules.rule import Array


def softmax(masked: Array, extra: Array | None = None) -> Array:
    """Return `exp(l_j) / sum_j exp(l_j)` along the last axis.

    The largest logit of each row is subtracted first, so no logit overflows. `extra` `[h 1 1]` is one more logit
    per head that takes its share of the sum and gets no weight. A row of -inf alone gives zeros.
    """
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    if extra is not None:
        largest = np.maximum(largest, extra)
    anchor = np.where(np.isneginf(largest), 0, largest)
    powers = np.exp(masked - anchor)
    total = powers.sum(axis=-1, keepdims=True)
    if extra is not None:
        total = total + np.exp(extra - anchor)
    return np.asarray(powers / np.where(total == 0, 1, total))


NORMALIZERS: dict[str, Callable[[Array, Array | None], Array]] = {"softmax": softmax}
