"""What must not change, tried on every variant: order of tokens, the future, poison, blocks, decoding, gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.config.schema import Config
from attn_exp.errors import OwnCodeError
from attn_exp.experiment.checks._invariants import numbers, order, sight
from attn_exp.experiment.checks._invariants.case import Answer, Case, Invariant
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import placed
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.number_types import limits
from attn_exp.experiment.sameness import SAME_FUNCTION
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem

TOLERANCE = 1e-9
"""Differences up to this, relative to the largest output, are rounding; those of finite differences up to its root.

Where a form computes in a coarser type than float64, `SAME_FUNCTION` units of that are."""

INVARIANTS = (
    Invariant("token order", order.token_order),
    Invariant("no leak from the future", sight.future),
    Invariant("poison NaN", sight.poison(float("nan"))),
    Invariant("poison 1e30", sight.poison(1e30)),
    Invariant("logit shift", numbers.logit_shift),
    Invariant("rope shift", numbers.rope_shift),
    Invariant("block size", order.block_size),
    Invariant("prefill against decode", sight.decoding),
    Invariant("head order", order.head_order),
    Invariant("gradients", numbers.gradients, slopes=True),
)


@dataclass(frozen=True)
class Record:
    """One invariant of one variant.

    `largest` is the largest difference relative to the largest output; `holds` is yes, no, or - where `note` says why
    the invariant does not apply.
    """

    variant: str
    invariant: str
    holds: str
    largest: float
    note: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Try every invariant on every variant."""
    for settled in variants:
        q, k, v = placed(settled, problem)
        for invariant in INVARIANTS:
            if q is None or k is None or v is None:
                yield judged(settled, invariant, "the problem has no queries, keys and values")
            else:
                yield judged(settled, invariant, attempted(invariant, Case(settled, q, k, v, settled.rules)))


def attempted(invariant: Invariant, case: Case) -> Answer:
    """Try one invariant; where the user's own code gives no answer, its error says why."""
    try:
        return invariant.attempt(case)
    except OwnCodeError as error:
        return str(error)


def judged(settled: Settled, invariant: Invariant, answer: Answer) -> Record:
    """Return the record of one attempt."""
    if isinstance(answer, str):
        return Record(settled.name, invariant.name, "-", float("nan"), answer)
    array, expected = answer
    size = float(np.abs(expected).max(initial=0.0)) or 1.0
    largest = largest_error(array, expected) / size
    rounding = max(TOLERANCE, SAME_FUNCTION * float(limits(settled.computed_in).eps))
    tolerance = rounding**0.5 if invariant.slopes else rounding
    return Record(settled.name, invariant.name, "yes" if largest <= tolerance else "no", largest, "")


def sentence(records: Sequence[Record]) -> str:
    """Say how many invariants hold and which do not."""
    applied = [record for record in records if record.holds != "-"]
    broken = [f"{record.invariant} of {record.variant}" for record in applied if record.holds == "no"]
    count = f"{len(applied) - len(broken)} of {len(applied)} invariants hold"
    return f"{count}; broken: {', '.join(broken)}." if broken else f"{count}."


CHECK = Check(
    record=Record,
    columns=("variant", "invariant", "holds", "largest", "note"),
    examine=examine,
    sentence=sentence,
)
