"""What each head does: the known patterns of attention, head by head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.errors import count_of
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import execute
from attn_exp.experiment.metrics.metric import head_means
from attn_exp.experiment.metrics.spread import rows_that_share
from attn_exp.experiment.metrics.targets import ahead, induction, on_delimiters, sink
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import entropy
from attn_exp.problem.problem import Problem

MEANINGS: Mapping[str, str] = {
    "previous": "weight on the token before",
    "first": "weight on the first token",
    "self": "weight on the token itself",
    "delimiter": "weight on full stops, commas and marks such as [SEP]",
    "induction": "weight on what followed the same token before",
    "broad": "entropy over the most that it could be",
}
"""The patterns, in the order in which readers see them."""

PATTERNS = tuple(MEANINGS)


def measure_patterns(weights: Array, tokens: Sequence[str], offset: int = 0, apart: bool = False) -> dict[str, Array]:
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


def find_strongest(numbers: Mapping[str, Array], head: int) -> tuple[str, float]:
    """Return the pattern that takes most of the weight of a head, and how much; `broad` takes none, and is left out."""
    own = {name: float(values[head]) for name, values in numbers.items() if name != "broad"}
    known = {name: value for name, value in own.items() if np.isfinite(value)}
    name = max(known, key=lambda name: known[name], default="")
    return name, known.get(name, float("nan"))


@dataclass(frozen=True)
class Record:
    """The patterns of one head, counted from 1: shares of its weight, NaN where the tokens have no place for one."""

    variant: str
    head: int
    previous: float
    first: float
    self_: float
    delimiter: float
    induction: float
    broad: float


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Measure every head of every variant that forms its weights."""
    for settled in variants:
        weights = execute(settled, problem).weights
        if weights is None:
            continue
        offset, apart = int(settled.rules.offset), problem.memory is not None
        numbers = measure_patterns(weights, problem.key_tokens, offset, apart)
        for head in range(len(weights)):
            yield Record(settled.name, head + 1, *(float(numbers[name][head]) for name in PATTERNS))


def sentence(records: Sequence[Record]) -> str:
    """Say what the patterns are."""
    if not records:
        return "no variant forms the weights of its heads."
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
    return f"{count_of(len(records), 'head')}; {meanings}."


CHECK = Check(
    record=Record,
    columns=tuple(field.name for field in fields(Record)),
    examine=examine,
    sentence=sentence,
)
