"""What heads do: the known patterns of attention, measured of each head alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import head_means
from attn_exp.experiment.metrics.spread import rows_that_share
from attn_exp.experiment.metrics.targets import ahead, induction, on_delimiters, sink
from attn_exp.forms.trace import entropy

MEANINGS: Mapping[str, str] = {
    "previous": "weight on the token before",
    "first": "weight on the first token",
    "self": "weight on the token itself",
    "delimiter": "weight on full stops, commas and marks such as [SEP]",
    "induction": "weight on what followed the same token before",
    "broad": "entropy over the most that it could be",
}
"""The patterns, in the order in which readers see them."""

NAMES = tuple(MEANINGS)


def measured(weights: Array, tokens: Sequence[str], offset: int = 0, apart: bool = False) -> dict[str, Array]:
    """Return each pattern of each head `[h]` of weights `[h t s]`; NaN where the tokens have no place for it.

    `tokens` are those of the keys; where they are of another input than the queries, `apart`, no key stands beside or
    before a query. `broad` counts the keys that a query gives any weight as those that it may see.
    """
    steps, nowhere = ahead(weights, offset), np.full(len(weights), np.nan)
    return {
        "previous": nowhere if apart else at(weights, steps == -1),
        "first": sink(weights),
        "self": nowhere if apart else at(weights, steps == 0),
        "delimiter": on_delimiters(weights, tokens),
        "induction": nowhere if apart else induction(weights, tokens),
        "broad": broad(weights),
    }


def at(weights: Array, places: Array) -> Array:
    """Return, per head, the mean weight on the places `[t s]`, over queries that have one."""
    some = places.any(axis=-1)
    return head_means((weights * places).sum(axis=-1)[:, some], weights[:, some])


def broad(weights: Array) -> Array:
    """Return, per head, the mean of `entropy / ln n` over queries that look at n > 1 keys; NaN where rows do not share
    out 1, as those of a sigmoid."""
    counts = (weights > 0).sum(axis=-1)
    if not rows_that_share(weights).all():
        return np.full(len(weights), np.nan)
    shares = entropy(weights) / np.log(np.maximum(counts, 2))
    each = zip(shares, counts > 1, strict=True)
    return np.array([rows[seen].mean() if seen.any() else np.nan for rows, seen in each])


def strongest(numbers: Mapping[str, Array], head: int) -> tuple[str, float]:
    """Return the pattern that takes most of the weight of a head, and how much; `broad` takes none, and is left out."""
    own = {name: float(values[head]) for name, values in numbers.items() if name != "broad"}
    known = {name: value for name, value in own.items() if np.isfinite(value)}
    name = max(known, key=lambda name: known[name], default="")
    return name, known.get(name, float("nan"))
