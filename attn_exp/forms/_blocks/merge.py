"""Parts of an answer put together."""

from __future__ import annotations

import numpy as np

from attn_exp.rules.grid import Array


def merge(context: Array, lse: Array, other: Array, other_lse: Array) -> tuple[Array, Array]:
    """Return the answer over all keys from the answers over two disjoint sets of them.

    `lse = logaddexp(lse_1, lse_2)`; `context = exp(lse_1 - lse) context_1 + exp(lse_2 - lse) context_2`; contexts
    `[... t e]`, log-sum-exps `[... t]`. A part that saw no key has an lse of -inf and adds nothing.

    Source: Dao et al. 2023, "Flash-Decoding for long-context inference".
    """
    together = np.logaddexp(lse, other_lse)
    anchor = np.where(np.isneginf(together), 0, together)
    shares = np.exp(lse - anchor)[..., None], np.exp(other_lse - anchor)[..., None]
    return shares[0] * context + shares[1] * other, together
