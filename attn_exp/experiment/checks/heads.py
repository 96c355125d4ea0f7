"""What each head does: the known attention patterns, head by head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.config.schema import Config
from attn_exp.errors import count_of
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import execute
from attn_exp.experiment.metrics.metric import head_means
from attn_exp.experiment.metrics.spread import normalized_entropy, rows_that_share
from attn_exp.experiment.metrics.targets import ahead, induction, on_delimiters, sink
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem

MEANINGS: Mapping[str, str] = {
    "previous": "weight on the token before",
    "first": "weight on the first token",
    "self": "weight on the token itself",
    "delimiter": "weight on full stops, commas and marks such as [SEP]",
    "induction": "weight on the token after an earlier copy of this one",
    "broad": "entropy divided by its maximum",
}
"""The patterns, in display order."""

PATTERNS = tuple(MEANINGS)


def measure_patterns(weights: Array, tokens: Sequence[str], offset: int = 0, apart: bool = False) -> dict[str, Array]:
    """Measure every pattern in every head: `[h]` each, from weights `[h t s]`; NaN if no token can show it.

    `tokens` are those of the keys; `apart` means that the queries come from another input, so that no key is next to or
    before a query. `broad` treats the keys with a nonzero weight as the visible ones.
    """
    steps, nowhere = ahead(weights, offset), np.full(len(weights), np.nan)
    return {
        "previous": nowhere if apart else mean_weight_at(weights, steps == -1),
        "first": sink(weights),
        "self": nowhere if apart else mean_weight_at(weights, steps == 0),
        "delimiter": on_delimiters(weights, tokens),
        "induction": nowhere if apart else induction(weights, tokens),
        "broad": broad(weights),
    }


def mean_weight_at(weights: Array, places: Array) -> Array:
    """Return, per head, the mean weight on the places `[t s]`, over the queries that have one."""
    some = places.any(axis=-1)
    return head_means((weights * places).sum(axis=-1)[:, some], weights[:, some])


def broad(weights: Array) -> Array:
    """Return, per head, the mean of `entropy / ln n` over the queries that attend to n > 1 keys.

    It is NaN if rows do not sum to 1, as with a sigmoid.
    """
    if not rows_that_share(weights).all():
        return np.full(len(weights), np.nan)
    each = (normalized_entropy(head, head > 0) for head in weights)
    return np.array([rows.mean() if rows.size else np.nan for rows in each])


def find_strongest(numbers: Arrays, head: int) -> tuple[str, float]:
    """Return the pattern with the largest weight in a head, and that weight; `broad`, an entropy, is left out."""
    known = {name: float(of[head]) for name, of in numbers.items() if name != "broad" and np.isfinite(of[head])}
    name = max(known, key=known.__getitem__, default="")
    return name, known.get(name, float("nan"))


@dataclass(frozen=True)
class Record:
    """The patterns of one head, counted from 1, as shares of its weight; NaN if no token can show one."""

    variant: str
    head: int
    previous: float
    first: float
    self_: float
    delimiter: float
    induction: float
    broad: float


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    for settled in variants:
        weights = execute(settled, problem).weights
        if weights is None:
            continue
        offset, apart = int(settled.rules.offset), problem.memory is not None
        numbers = measure_patterns(weights, problem.key_tokens, offset, apart)
        for head in range(len(weights)):
            yield Record(settled.name, head + 1, *(float(numbers[name][head]) for name in PATTERNS))


def sentence(records: Sequence[Record]) -> str:
    if not records:
        return "no variant forms the weights of its heads."
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
    return f"{count_of(len(records), 'head')}; {meanings}."


CHECK = Check(record=Record, examine=examine, sentence=sentence)
