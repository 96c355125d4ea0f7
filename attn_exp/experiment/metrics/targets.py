"""Where queries attend: how far away, to the first key, to delimiters, or to the token after an earlier copy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.experiment.metrics.metric import (
    Metric,
    Subject,
    get_sequence_weights,
    head_means,
    mean,
    mean_seen,
    weights,
)
from attn_exp.experiment.metrics.spread import are_distributions, normalized_entropy, shares

DELIMITERS = frozenset((".", ",", ";", ":", "!", "?", "[SEP]", "</s>", "<|endoftext|>", "<|end_of_text|>"))
"""Punctuation and separator tokens. A leading `_`, which stands for a space, is ignored."""


def on_delimiters(weights: Array, tokens: Sequence[str]) -> Array:
    """Return the mean weight that the queries of each head give to delimiter keys; NaN if there are none.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 3.2, for [SEP], full stops and commas.
    """
    chosen = np.array([token.removeprefix("_") in DELIMITERS for token in tokens])
    means = head_means(weights[:, :, chosen].sum(axis=-1), weights)
    return means if chosen.any() else np.full_like(means, np.nan)


def distance(weights: Array, offset: int = 0) -> Array:
    """Return `sum_j w_j |i - j|` of each row, in tokens.

    Source: Vig and Belinkov 2019, "Analyzing the Structure of Attention", section 4.2.
    """
    return np.asarray((weights * np.abs(relative_positions(weights, offset))).sum(axis=-1))


def looks_back(weights: Array, offset: int = 0) -> Array:
    return np.asarray(np.where(relative_positions(weights, offset) < 0, weights, 0).sum(axis=-1))


def at_distance(weights: Array, steps: int, offset: int = 0) -> float:
    """Return the share of all weight that is on the key `steps` after the query: 0 is its own token, -1 the previous.

    The formula is `sum_ij w_ij [j = i + steps] / sum_ij w_ij`, averaged over heads. Queries without such a key count
    too. Source: TransformerLens, `head_detector.py`, `error_measure="mul"`; its previous-token pattern is `steps` = -1.
    """
    total = weights.sum(axis=(-1, -2))
    on_pattern = (weights * (relative_positions(weights, offset) == steps)).sum(axis=(-1, -2))
    return mean(on_pattern[total > 0] / total[total > 0])


def relative_positions(weights: Array, offset: int) -> Array:
    """Return the position of each key minus the position of each query, `[t s]`."""
    return np.arange(weights.shape[-1]) - np.arange(weights.shape[-2])[:, None] - offset


def induction(weights: Array, tokens: Sequence[str]) -> Array:
    """Return the mean weight that the queries of each head give to keys right after earlier copies of their token.

    For example, in `a b c a` the result is the weight that the last query gives to b. The formula is
    `mean_i sum_j w_ij [token_(j-1) = token_i, j < i]`, over the queries that have such a key. The result is NaN if no
    query has one, or if queries and keys are not the same tokens. Source: Olsson et al. 2022, "In-context Learning and
    Induction Heads", on repeated sequences.
    """
    if weights.shape[1:] != (len(tokens), len(tokens)):
        return np.full(len(weights), np.nan)
    names = np.array(tokens)
    is_target = np.zeros((len(names), len(names)), bool)
    is_target[:, 1:] = names[:, None] == names[None, :-1]
    is_target = np.tril(is_target, -1)
    has_target = is_target.any(axis=-1)
    return head_means((weights * is_target).sum(axis=-1)[:, has_target], weights[:, has_target])


def sink(weights: Array, key: int = 0) -> Array:
    """Return the mean weight of each head on `key` (k), over the queries from k on: `1 / (T - k) sum_(i >= k) w_ik`.

    Source: Gu et al. 2024, "When Attention Sink Emerges in Language Models", section 3.1.
    """
    return head_means(weights[:, key:, key], weights[:, key:])


def sink_rate(weights: Array, threshold: float = 0.3) -> float:
    """Return the share of heads with a `sink` above the threshold on the first key. Source: as for `sink`."""
    sinks = sink(weights)
    return mean(sinks[~np.isnan(sinks)] > threshold)


def shares_of_one_sequence(subject: Subject) -> Array:
    get_sequence_weights(subject)
    return shares(subject)


def mean_over_heads(numbers: Array) -> float:
    return mean(numbers[~np.isnan(numbers)])


# The known patterns of heads

MEANINGS = {
    "previous": "weight on the token before",
    "first": "weight on the first token",
    "self": "weight on the token itself",
    "delimiter": "weight on full stops, commas and marks such as [SEP]",
    "induction": "weight on the token after an earlier copy of this one",
    "broad": "entropy divided by its maximum",
}
"""The patterns, in display order."""

PATTERNS = tuple(MEANINGS)


def measure_patterns(
    weights: Array, tokens: Sequence[str], offset: int = 0, is_cross_attention: bool = False
) -> dict[str, Array]:
    """Return the strength of every pattern in every head, `[h]` by name; NaN if no token can show the pattern.

    `weights` is `[h t s]`, and `tokens` names the keys. `is_cross_attention` means that queries come from
    another input, so that no key is next to a query or before it. `broad` counts keys with a nonzero weight as visible.
    """
    steps, nowhere = relative_positions(weights, offset), np.full(len(weights), np.nan)
    return {
        "previous": nowhere if is_cross_attention else mean_weight_at(weights, steps == -1),
        "first": sink(weights),
        "self": nowhere if is_cross_attention else mean_weight_at(weights, steps == 0),
        "delimiter": on_delimiters(weights, tokens),
        "induction": nowhere if is_cross_attention else induction(weights, tokens),
        "broad": broad(weights),
    }


def mean_weight_at(weights: Array, targets: Array) -> Array:
    """Return the mean weight of each head on the keys that are marked in `targets` `[t s]`.

    Queries without a marked key are left out.
    """
    has_target = targets.any(axis=-1)
    return head_means((weights * targets).sum(axis=-1)[:, has_target], weights[:, has_target])


def broad(weights: Array) -> Array:
    """Return the mean of `entropy / ln n` for each head, over the queries that attend to n > 1 keys.

    NaN if rows do not sum to 1, as with a sigmoid.
    """
    if not are_distributions(weights).all():
        return np.full(len(weights), np.nan)
    entropies = (normalized_entropy(head, head > 0) for head in weights)
    return np.array([rows.mean() if rows.size else np.nan for rows in entropies])


def find_strongest(numbers: Arrays, head: int) -> tuple[str, float]:
    """Return the pattern with the largest weight in a head, and that weight; skip `broad`, which is not a weight."""
    weights = {
        name: float(values[head]) for name, values in numbers.items() if name != "broad" and np.isfinite(values[head])
    }
    name = max(weights, key=weights.__getitem__, default="")
    return name, weights.get(name, float("nan"))


metric = partial(Metric, place=6)

METRICS = (
    metric(
        "on_delimiters",
        lambda subject: mean_over_heads(on_delimiters(shares(subject), subject.key_tokens)),
        meaning="the mean weight on full stops, commas and marks such as [SEP]",
        source='Clark et al. 2019, "What Does BERT Look At?", section 3.2',
    ),
    metric(
        "distance",
        lambda subject: mean_seen(lambda rows: distance(rows, subject.offset), shares_of_one_sequence, subject),
        meaning="the mean distance of the keys that a query attends to",
        unit="tokens",
        source="Vig and Belinkov 2019, section 4.2",
    ),
    metric(
        "looks_back",
        lambda subject: mean_seen(lambda rows: looks_back(rows, subject.offset), shares_of_one_sequence, subject),
        meaning="the mean weight on earlier keys",
    ),
    metric(
        "on_itself",
        lambda subject: at_distance(get_sequence_weights(subject), 0, subject.offset),
        meaning="the share of the total weight that falls on the query's own token",
    ),
    metric(
        "on_previous",
        lambda subject: at_distance(get_sequence_weights(subject), -1, subject.offset),
        meaning="the share of the total weight that falls on the previous token",
        source='TransformerLens, head_detector.py, error_measure="mul"',
    ),
    metric(
        "induction",
        lambda subject: mean_over_heads(induction(shares_of_one_sequence(subject), subject.key_tokens)),
        meaning="the mean weight on the token after an earlier copy of the query's token",
        source='Olsson et al. 2022, "In-context Learning and Induction Heads"',
    ),
    partial(Metric, place=4)(
        "sink",
        lambda subject: mean_over_heads(sink(weights(subject))),
        meaning="the mean weight on the first key",
        unit="weight of key 1",
        source='Gu et al. 2024, "When Attention Sink Emerges in Language Models", section 3.1',
    ),
    partial(Metric, place=4)(
        "sink_rate",
        lambda subject: sink_rate(weights(subject)),
        meaning="the share of heads with a mean weight over 0.3 on the first key",
        unit="of heads",
        source="Gu et al. 2024, section 3.1",
    ),
)
