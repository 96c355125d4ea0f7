"""What each head does: the known patterns of attention, head by head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from attn_exp.config.schema import Config
from attn_exp.errors import count_of
from attn_exp.experiment import patterns
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import execute
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem


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
        numbers = patterns.measured(weights, problem.key_tokens, offset, apart)
        for head in range(len(weights)):
            yield Record(settled.name, head + 1, *(float(numbers[name][head]) for name in patterns.NAMES))


def sentence(records: Sequence[Record]) -> str:
    """Say what the patterns are."""
    if not records:
        return "no variant forms the weights of its heads."
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in patterns.MEANINGS.items())
    return f"{count_of(len(records), 'head')}; {meanings}."


CHECK = Check(
    record=Record,
    columns=tuple(field.name for field in fields(Record)),
    examine=examine,
    sentence=sentence,
)
