"""How weights spread over keys (entropy, sparsity, density of the mask), and the rank of weights and outputs."""

from __future__ import annotations

from functools import partial

import numpy as np

from attn_exp.arrays import Array, widen
from attn_exp.experiment.metrics.metric import (
    Metric,
    Subject,
    find_seeing_queries,
    finite_weights,
    get_stage,
    mean,
    mean_seen,
    require_formed,
    sees,
    weights,
)
from attn_exp.forms.trace import Trace, entropy
from attn_exp.rules.rules import Rules

PRINTED = 0.02
"""How much the sum of a row may differ from 1: weights that a document prints may have only two digits."""


def rows_are_distributions(trace: Trace, rules: Rules) -> bool:
    """Return whether each row of weights is a distribution, judged by the rules and by any stored weights."""
    shares_by_definition = shares_by_rule(rules)
    if trace.weights is None or not shares_by_definition:
        return shares_by_definition and not rules.normalizer.signed
    has_weights = ~np.isnan(trace.weights).all(axis=-1)  # under some conventions, a query without keys gives NaN
    return bool((are_distributions(trace.weights) | ~has_weights).all())


def shares_by_rule(rules: Rules) -> bool:
    """Return whether the rules make every row of weights sum to 1; an extra logit, for example, prevents that."""
    return rules.normalizer.sums_to_one and all(rule.extra(0) is None for rule in rules.scores)


def are_distributions(weights: Array) -> Array:
    """Return whether each row is a distribution, `[... s] -> [...]`: nonnegative with sum 1, or all zero."""
    return (weights >= 0).all(axis=-1) & sum_to_one(weights)


def sum_to_one(weights: Array) -> Array:
    """Return whether each row sums to 1 within `PRINTED`, or to 0, `[... s] -> [...]`."""
    sums = widen(weights).sum(axis=-1)
    return np.asarray((sums == 0) | (np.abs(sums - 1) <= PRINTED))


def shares(subject: Subject) -> Array:
    """Return the weights of a variant, `[h t s]`, if each row is a distribution.

    Raises:
        NotFormedError: some row is not; with a sigmoid or a sink, for example, rows do not sum to 1.
    """
    require_formed(rows_are_distributions(subject.trace, subject.settled.rules))
    return weights(subject)


def effective_keys(weights: Array) -> Array:
    """Return `exp(entropy)` of each row: the number of equally weighted keys with the same entropy."""
    return np.exp(entropy(weights))


def largest_weight(weights: Array) -> Array:
    """Return `max_j w_j` of each row. Its mean over rows is the confidence of Voita et al. 2019, section 4."""
    return np.asarray(weights.max(axis=-1, initial=0.0))


def normalized_entropy(weights: Array, allowed: Array) -> Array:
    """Return `entropy / ln n` of each row with n > 1 allowed keys: 0 if one has all the weight, 1 if all are equal.

    Rows with fewer keys are left out. Source: Clark et al. 2019, "What Does BERT Look At?", section 3.3; here divided
    by the maximum.
    """
    count = np.broadcast_to(allowed, weights.shape).sum(axis=-1)
    return np.asarray((entropy(weights) / np.log(np.maximum(count, 2)))[count > 1])


def participation(weights: Array) -> Array:
    """Return `1 / sum_j w_j^2` of each nonzero row: the inverse participation ratio, in keys."""
    squares = (weights**2).sum(axis=-1)
    return np.asarray(1 / squares[squares > 0])


def saturation(weights: Array, threshold: float) -> float:
    """Return the share of rows whose largest weight is above the threshold.

    Source: Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 4, on confident heads.
    """
    return mean(largest_weight(weights)[sees(weights)] > threshold)


def sparsity(weights: Array, threshold: float = 1e-3) -> float:
    return mean(weights[sees(weights)] < threshold)


def gini(weights: Array) -> Array:
    """Return the Gini index of each row: 0 if all weights are equal, `1 - 1/s` if one key has all.

    Source: Hurley and Rickard 2009, "Comparing Measures of Sparsity", table II.
    """
    ascending = np.sort(weights, axis=-1)
    count = weights.shape[-1]
    total = ascending.sum(axis=-1)
    ranked_sum = (ascending * (count - np.arange(count) - 0.5)).sum(axis=-1)
    return np.where(total == 0, 0, 1 - 2 * ranked_sum / np.where(total == 0, 1, total) / count)


def hoyer(weights: Array) -> Array:
    """Return `(sqrt(s) - |w|_1 / |w|_2) / (sqrt(s) - 1)` of each row: 0 if all weights are equal, 1 if one key has all.

    Source: Hoyer 2004, "Non-negative Matrix Factorization with Sparseness Constraints", section 3.1.
    """
    root, length = np.sqrt(weights.shape[-1]), np.linalg.norm(weights, axis=-1)
    if root == 1:
        return np.ones_like(length)
    return np.asarray((root - weights.sum(axis=-1) / np.where(length == 0, np.inf, length)) / (root - 1))


def count_keys_for(weights: Array, share: float = 0.9) -> Array:
    """Return, for each row, the smallest number of keys that together have this share of the row's weight."""
    sums = np.cumsum(-np.sort(-weights, axis=-1), axis=-1)
    return np.asarray((sums < share * sums[..., -1:] * (1 - 1e-12)).sum(axis=-1) + (sums[..., -1] > 0))


def nonnegative_weights(subject: Subject) -> Array:
    """Return the weights of a variant, `[h t s]`, if none is negative; measures of sparsity need that.

    Raises:
        NotFormedError: some weights are negative; with `normalizer=sum` they may be.
    """
    variant_weights = weights(subject)
    require_formed(not (variant_weights < 0).any())
    return variant_weights


def block_emptiness(allowed: Array, size: int = 16) -> float:
    """Return the share of `size x size` blocks of a mask `[t s]` that are hidden entirely.

    Source: PyTorch FlexAttention, `BlockMask.sparsity`.
    """
    rows, keys = (range(0, length, size) for length in allowed.shape)
    return float(np.mean([not allowed[row : row + size, key : key + size].any() for row in rows for key in keys]))


def effective_rank(matrix: Array) -> Array:
    """Return `exp(-sum p ln p)` for each head, where p are the singular values divided by their sum.

    Source: Roy and Vetterli 2007, "The Effective Rank: A Measure of Effective Dimensionality".
    """
    values = np.linalg.svd(matrix, compute_uv=False)
    total = values.sum(axis=-1, keepdims=True)
    shares = values / np.where(total == 0, 1, total)
    return np.exp(entropy(shares))


def stable_rank(matrix: Array) -> Array:
    """Return `|A|_F^2 / sigma_1^2` per head. Source: Rudelson and Vershynin 2007, "Sampling from Large Matrices"."""
    values = np.linalg.svd(matrix, compute_uv=False)
    largest = values.max(axis=-1)
    return np.asarray((values**2).sum(axis=-1) / np.where(largest == 0, 1, largest**2))


def rank_collapse(output: Array) -> float:
    """Return how much the rows of an output differ, relative to its size: 0 if all rows are equal.

    The formula is `|X - 1 x^T| / |X|`, where x is the mean row and the norm is `sqrt(|.|_1 |.|_inf)`. Source: Dong et
    al. 2021, "Attention Is Not All You Need", section 2; there, x minimizes the norm.
    """
    norm, norm_without_mean = (
        float(np.sqrt(np.linalg.norm(matrix, 1) * np.linalg.norm(matrix, np.inf)))
        for matrix in (output, output - output.mean(axis=0))
    )
    return norm_without_mean / norm if norm else 0.0


metric, ranked, scarce, masked = (partial(Metric, place=place) for place in (2, 5, 8, 10))

METRICS = (
    metric(
        "entropy",
        partial(mean_seen, entropy, shares),
        meaning="0 if one key has all the weight",
        unit="nats",
        source="Shannon 1948; for attention: Clark et al. 2019, section 3.3",
    ),
    metric(
        "normalized_entropy",
        lambda subject: mean(normalized_entropy(shares(subject), subject.allowed())),
        meaning="entropy divided by the maximum that the mask allows: 1 if all weights are equal",
        unit="of ln n",
        source='Clark et al. 2019, "What Does BERT Look At?", section 3.3',
    ),
    metric(
        "effective_keys",
        partial(mean_seen, effective_keys, shares),
        meaning="how many equally weighted keys would have the same entropy",
        unit="keys",
    ),
    metric(
        "participation",
        lambda subject: mean(participation(shares(subject))),
        meaning="1 divided by the sum of the squared weights of a row",
        unit="keys",
    ),
    metric(
        "largest_weight",
        partial(mean_seen, largest_weight, weights),
        meaning="the mean of the largest weight of each row",
        source="Voita et al. 2019, section 4",
    ),
    metric(
        "saturation_90",
        lambda subject: saturation(shares(subject), 0.9),
        meaning="the share of rows in which one key has over 0.9 of the weight",
        unit="of rows",
        source="Voita et al. 2019, section 4",
    ),
    metric(
        "saturation_99",
        lambda subject: saturation(shares(subject), 0.99),
        meaning="the share of rows in which one key has over 0.99 of the weight",
        unit="of rows",
        source="Voita et al. 2019, section 4",
    ),
    scarce(
        "sparsity",
        lambda subject: sparsity(nonnegative_weights(subject)),
        meaning="the share of weights close to zero",
        unit="of weights < 1e-3",
    ),
    scarce(
        "gini",
        partial(mean_seen, gini, nonnegative_weights),
        meaning="0 if all weights are equal, near 1 if one key has all the weight",
        source="Hurley and Rickard 2009",
    ),
    scarce(
        "hoyer",
        partial(mean_seen, hoyer, nonnegative_weights),
        meaning="0 if all weights are equal, 1 if one key has all the weight",
        source="Hoyer 2004, section 3.1",
    ),
    scarce(
        "keys_for_90",
        partial(mean_seen, count_keys_for, nonnegative_weights),
        meaning="how many keys it takes to reach 90% of the weight of a row",
        unit="keys",
    ),
    masked(
        "mask_density",
        lambda subject: subject.allowed().mean(),
        meaning="the share of query-key pairs that the mask allows",
        unit="of places",
    ),
    masked(
        "empty_blocks",
        lambda subject: block_emptiness(np.asarray(subject.allowed().any(axis=0))),
        meaning="the share of blocks that the mask hides entirely",
        unit="of 16 x 16",
        source="PyTorch FlexAttention, BlockMask.sparsity",
    ),
    ranked(
        "effective_rank",
        lambda subject: effective_rank(finite_weights(subject)).mean(),
        meaning="the exponential of the entropy of the singular values of the weights",
        source="Roy and Vetterli 2007",
    ),
    ranked(
        "stable_rank",
        lambda subject: stable_rank(finite_weights(subject)).mean(),
        meaning="the squared norm of the weights divided by their largest singular value squared",
        source="Rudelson and Vershynin 2007",
    ),
    ranked(
        "rank_collapse",
        lambda subject: rank_collapse(get_stage(subject.trace, "output")[find_seeing_queries(subject)]),
        meaning="0 if all tokens have the same output",
        source='Dong et al. 2021, "Attention Is Not All You Need", section 2',
    ),
)
