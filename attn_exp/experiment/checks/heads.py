"""Measure how strongly each head shows each known attention pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attn_exp.config.schema import Config
from attn_exp.errors import count_of
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import execute
from attn_exp.experiment.metrics.targets import MEANINGS, PATTERNS, measure_patterns
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem


@dataclass(frozen=True)
class Record:
    """The strength of each pattern in one head, from 0 to 1; NaN if no token can show it. Heads are counted from 1."""

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
        numbers = measure_patterns(
            weights, problem.key_tokens, int(settled.rules.offset), is_cross_attention=problem.memory is not None
        )
        for head in range(len(weights)):
            yield Record(settled.name, head + 1, *(float(numbers[name][head]) for name in PATTERNS))


def sentence(records: Sequence[Record]) -> str:
    if not records:
        return "no variant computes the weights of its heads."
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
    return f"{count_of(len(records), 'head')}; {meanings}."


CHECK = Check(record=Record, examine=examine, sentence=sentence)
