"""What heads do: the known patterns of attention, measured of each head alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.metrics.metric import NotFormedError, head_means
from attn_exp.experiment.metrics.spread import rows_that_share
from attn_exp.experiment.metrics.targets import ahead, induction, on_delimiters, sink
from attn_exp.forms.trace import entropy

NAMES = ("previous", "first", "self", "delimiter", "induction", "broad")
"""The patterns, in the order in which readers see them."""

MEANINGS: Mapping[str, str] = {
    "previous": "weight on the token before",
    "first": "weight on the first token",
    "self": "weight on the token itself",
    "delimiter": "weight on full stops, commas and marks such as [SEP]",
    "induction": "weight on what followed the same token before",
    "broad": "entropy over the most that it could be",
}


def measured(weights: Array, tokens: Sequence[str], offset: int = 0, apart: bool = False) -> dict[str, Array]:
    """Return each pattern of each head `[h]` of weights `[h t s]`; NaN where the tokens have no place for it.

    `tokens` are those of the keys; where they are of another input than the queries, `apart`, no key stands beside or
    before a query. `broad` counts the keys that a query gives any weight as those that it may see.
    """
    steps = ahead(weights, offset)
    ways: dict[str, Callable[[], Array]] = {
        "previous": lambda: at(weights, steps == -1),
        "first": lambda: sink(weights),
        "self": lambda: at(weights, steps == 0),
        "delimiter": lambda: on_delimiters(weights, tokens),
        "induction": lambda: induction(weights, tokens),
        "broad": lambda: broad(weights),
    }
    if apart:
        ways |= dict.fromkeys(("previous", "self", "induction"), nowhere)
    return {name: or_nan(ways[name], len(weights)) for name in NAMES}


def nowhere() -> Array:
    """Say that there is no place for a pattern."""
    raise NotFormedError


def at(weights: Array, places: Array) -> Array:
    """Return, per head, the mean weight on the places `[t s]`, over queries that have one."""
    some = places.any(axis=-1)
    if not some.any():
        raise NotFormedError
    return head_means((weights * places).sum(axis=-1)[:, some], weights[:, some])


def broad(weights: Array) -> Array:
    """Return, per head, the mean of `entropy / ln n` over queries that look at n > 1 keys; NaN where rows do not share
    out 1, as those of a sigmoid."""
    counts = (weights > 0).sum(axis=-1)
    if not rows_that_share(weights).all():
        return np.full(len(weights), np.nan)
    shares = np.where(counts > 1, entropy(weights) / np.log(np.maximum(counts, 2)), np.nan)
    some = (counts > 1).any(axis=-1)
    return np.array([np.nanmean(rows) if seen else np.nan for rows, seen in zip(shares, some, strict=True)])


def or_nan(measure: Callable[[], Array], heads: int) -> Array:
    """Return what a measure says of each head, NaN where the tokens have no place for it."""
    try:
        return measure()
    except NotFormedError:
        return np.full(heads, np.nan)


def strongest(numbers: Mapping[str, Array], head: int) -> tuple[str, float]:
    """Return the pattern that takes most of the weight of a head, and how much; `broad` takes none, and is left out."""
    own = {name: float(values[head]) for name, values in numbers.items() if name != "broad"}
    known = {name: value for name, value in own.items() if np.isfinite(value)}
    name = max(known, key=lambda name: known[name], default="")
    return name, known.get(name, float("nan"))
