"""What attention weights and logits look like, in single numbers; each function says what it measures and whose it is.

Weights are `[h t s]`, rows that see no key are zero, and means are over heads and queries unless a function says
otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.experiment.metrics.metrics import entropy

Array = NDArray[Any]


def normalized_entropy(weights: Array, allowed: Array) -> Array:
    """Return `entropy / ln n` of each row that may see n > 1 keys: 0 where one key takes all, 1 where all share.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 3.3, over the largest value that it can take.
    """
    count = np.broadcast_to(allowed, weights.shape).sum(axis=-1)
    return np.asarray((entropy(weights) / np.log(np.maximum(count, 2)))[count > 1])


def participation(weights: Array) -> Array:
    """Return `1 / sum_j w_j^2` of each row that sees anything: the inverse participation ratio, in keys."""
    squares = (weights**2).sum(axis=-1)
    return np.asarray(1 / squares[squares > 0])


def saturation(weights: Array, threshold: float) -> float:
    """Return the share of rows whose largest weight is above the threshold.

    Source: Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 4, counts heads by such confidence.
    """
    return float((weights.max(axis=-1, initial=0.0) > threshold).mean())


def sink(weights: Array, key: int = 0) -> Array:
    """Return, per head, the mean weight that queries from `key` on give to it: `1 / (T - k) sum_(i >= k) w_ik`.

    Source: Gu et al. 2024, "When Attention Sink Emerges in Language Models", section 3.1.
    """
    return np.asarray(weights[:, key:, key].mean(axis=-1))


def sink_rate(weights: Array, threshold: float = 0.3) -> float:
    """Return the share of heads whose first key is a sink: `sink > threshold`. Source: as `sink`, with its 0.3."""
    return float((sink(weights) > threshold).mean())


def effective_rank(matrix: Array) -> Array:
    """Return `exp(-sum p ln p)` with p the singular values over their sum, per head.

    Source: Roy and Vetterli 2007, "The Effective Rank: A Measure of Effective Dimensionality".
    """
    values = np.linalg.svd(matrix, compute_uv=False)
    total = values.sum(axis=-1, keepdims=True)
    shares = values / np.where(total == 0, 1, total)
    return np.exp(entropy(shares))


def stable_rank(matrix: Array) -> Array:
    """Return `|A|_F^2 / sigma_1^2`, per head. Source: Rudelson and Vershynin 2007, "Sampling from Large Matrices"."""
    values = np.linalg.svd(matrix, compute_uv=False)
    largest = values.max(axis=-1)
    return np.asarray((values**2).sum(axis=-1) / np.where(largest == 0, 1, largest**2))


def rank_collapse(output: Array) -> float:
    """Return `|X - 1 x^T| / |X|` with x the mean row, in the norm `sqrt(|.|_1 |.|_inf)`: 0 where all tokens are one.

    Source: Dong et al. 2021, "Attention Is Not All You Need", section 2, whose x is the best one in that norm.
    """

    def size(matrix: Array) -> float:
        return float(np.sqrt(np.linalg.norm(matrix, 1) * np.linalg.norm(matrix, np.inf)))

    whole = size(output)
    return size(output - output.mean(axis=0)) / whole if whole else 0.0


def distance(weights: Array, offset: int = 0) -> Array:
    """Return `sum_j w_j |i - j|` of each row, in tokens.

    Source: Vig and Belinkov 2019, "Analyzing the Structure of Attention", section 4.2.
    """
    return np.asarray((weights * np.abs(ahead(weights, offset))).sum(axis=-1))


def looks_back(weights: Array, offset: int = 0) -> Array:
    """Return the weight that each row gives to earlier keys."""
    return np.asarray(np.where(ahead(weights, offset) < 0, weights, 0).sum(axis=-1))


def at_distance(weights: Array, steps: int, offset: int = 0) -> float:
    """Return the mean weight that queries give to the key `steps` after them (0: itself, -1: the one before).

    Source: TransformerLens, `head_detector.py`, previous-token and duplicate-token heads.
    """
    places = ahead(weights, offset) == steps
    return float((weights * places).sum(axis=-1)[:, places.any(axis=-1)].mean())


def ahead(weights: Array, offset: int) -> Array:
    """Return `key - query` `[t s]`, as positions."""
    return np.asarray(np.arange(weights.shape[-1]) - np.arange(weights.shape[-2])[:, None] - offset)


def sparsity(weights: Array, threshold: float = 1e-3) -> float:
    """Return the share of weights below the threshold."""
    return float((weights < threshold).mean())


def gini(weights: Array) -> Array:
    """Return the Gini index of each row: 0 where all keys share, `1 - 1/s` where one takes all.

    Source: Hurley and Rickard 2009, "Comparing Measures of Sparsity", table II.
    """
    ranked = np.sort(weights, axis=-1)
    count = weights.shape[-1]
    total = ranked.sum(axis=-1)
    lesser = (ranked * (count - np.arange(count) - 0.5)).sum(axis=-1)
    return np.asarray(np.where(total == 0, 0, 1 - 2 * lesser / np.where(total == 0, 1, total) / count))


def hoyer(weights: Array) -> Array:
    """Return `(sqrt(s) - |w|_1 / |w|_2) / (sqrt(s) - 1)` of each row: 0 where all share, 1 where one takes all.

    Source: Hoyer 2004, "Non-negative Matrix Factorization with Sparseness Constraints", section 3.1.
    """
    root, length = np.sqrt(weights.shape[-1]), np.linalg.norm(weights, axis=-1)
    if root == 1:
        return np.ones_like(length)
    return np.asarray((root - weights.sum(axis=-1) / np.where(length == 0, np.inf, length)) / (root - 1))


def keys_for(weights: Array, share: float = 0.9) -> Array:
    """Return how many of its largest weights each row needs to reach a share of its sum."""
    sums = np.cumsum(-np.sort(-weights, axis=-1), axis=-1)
    return np.asarray((sums < share * sums[..., -1:] * (1 - 1e-12)).sum(axis=-1) + (sums[..., -1] > 0))


def block_emptiness(allowed: Array, size: int = 16) -> float:
    """Return the share of `size x size` blocks of a mask `[t s]` in which no place may attend.

    Source: PyTorch FlexAttention, `BlockMask.sparsity`.
    """
    rows, keys = (range(0, length, size) for length in allowed.shape)
    return float(np.mean([not allowed[row : row + size, key : key + size].any() for row in rows for key in keys]))


def jacobian_norm(weights: Array) -> Array:
    """Return the largest singular value of `diag(w) - w w^T` of each row: at most 1/2, and 0 where one key takes all.

    It is how much softmax lets a change of logits through. Source: Kim et al. 2021, "The Lipschitz Constant of
    Self-Attention", section 3.
    """
    rows = weights.reshape(-1, weights.shape[-1])
    norms = [np.linalg.norm(np.diag(row) - np.outer(row, row), 2) for row in rows]
    return np.array(norms).reshape(weights.shape[:-1])


def expected_variance(q: Array, k: Array) -> float:
    """Return `d mean(q^2) mean(k^2)`: the variance of `q . k` if all their numbers were independent with mean zero.

    `q` `[h t d]`, `k` `[g s d]`. It grows with d, which dividing the logits by sqrt(d) undoes. Source: Vaswani et al.
    2017, "Attention Is All You Need", section 3.2.1, footnote 4.
    """
    return float(q.shape[-1] * np.mean(q**2) * np.mean(k**2))


def log_sum_exp(masked: Array) -> Array:
    """Return `ln sum_j exp(l_j)` of each row; -inf where it sees nothing.

    Source: FlashAttention-2, section 3.1: what merges parts of an answer; FlexAttention returns -inf for empty rows.
    """
    largest = masked.max(axis=-1, keepdims=True, initial=-np.inf)
    anchor = np.where(np.isneginf(largest), 0, largest)
    sums = np.exp(masked - anchor).sum(axis=-1)
    return np.asarray(np.log(sums, where=sums > 0, out=np.full_like(sums, -np.inf)) + anchor[..., 0])
