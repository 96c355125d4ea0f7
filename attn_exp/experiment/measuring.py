"""The row of a variant: how right it is, how far from the first, and what its weights look like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attn_exp import forms
from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.experiment.executing import answer
from attn_exp.experiment.metrics.errors import error_in_ulp, largest_error, row_sum_error
from attn_exp.experiment.metrics.first_row import cosine
from attn_exp.experiment.metrics.spread import effective_keys, entropy, largest_weight
from attn_exp.experiment.row import COLUMNS, Row
from attn_exp.experiment.sameness import sameness
from attn_exp.experiment.shares import share_out
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.reference import oracle
from attn_exp.rules.rules import Rules

EMPTY: Mapping[str, Any] = MappingProxyType({})


def make_row(
    settled: Settled,
    config: Config,
    problem: Problem,
    first: Settled,
    computed: Mapping[str, Trace],
    expected: oracle.Answer | None,
    letter: str,
) -> Row:
    """Return the row of one variant; nothing is expected where the form refuses, or the reference has no answer."""
    numbers = {} if settled.refused else measured(settled, first, computed, expected)
    return described(settled, config, problem, computed.get(settled.name, Trace()), {"same_as": letter} | numbers)


def described(
    settled: Settled, config: Config, problem: Problem, trace: Trace, numbers: Mapping[str, Any] = EMPTY
) -> Row:
    """Return the row of a variant with the numbers that were measured; the others are those of `unmeasured`."""
    return Row(
        variant=settled.name,
        form=settled.form,
        head=settled.head,
        scale=settled.scale,
        multiplier=settled.multiplier,
        bias=config.bias,
        output_projection=settled.output_projection,
        mistake=settled.mistake,
        **(unmeasured() | dict(numbers)),
        flops=flops(len(problem.tokens), problem.keys, settled.head, size(trace.q), size(trace.v)),
        kv_head=settled.heads.shared,
        mask=settled.words["mask"],
        score=settled.words["score"],
        position=settled.words["position"],
        normalizer=settled.rules.normalizer.name,
        convention=settled.words["convention"],
        note=settled.refused or oracle.silent(settled.question) or "",
        computed_in=settled.computed_in.name,
    )


def unmeasured() -> dict[str, Any]:
    """Return the numbers of a variant that was not computed, or not checked."""
    numbers = [name for name, column in COLUMNS.items() if column.summed]
    return {"checked": 0, "same_as": "", "sameness": "", "differs_at": ""} | dict.fromkeys(numbers, math.nan)


def measured(
    settled: Settled, leader: Settled, computed: Mapping[str, Trace], expected: oracle.Answer | None
) -> dict[str, Any]:
    """Return how right a variant is, how far from the first row, and what its weights look like."""
    trace = computed[settled.name]
    mine, first = answer(trace), answer(computed[leader.name])
    apart = sameness(computed[leader.name], trace, forms.coarser(settled.computed_in, leader.computed_in))
    return {
        **({} if expected is None else held(mine, expected, settled.computed_in)),
        "shift": difference(mine, first),
        "cosine": cosine(mine, first) if mine.shape == first.shape else math.nan,
        "sameness": apart.word,
        "differs_at": apart.differs_at,
        **spread(trace, settled.rules),
    }


def held(mine: Array, expected: oracle.Answer, kind: np.dtype[Any]) -> dict[str, Any]:
    """Return how far an answer is from the reference's, over the queries that the reference answered."""
    checked = mine[list(expected.rows)] if expected.output is not None else mine[:, list(expected.rows)]
    truth = expected.weights if expected.output is None else expected.output
    return {
        "error": largest_error(checked, truth),
        "error_ulp": error_in_ulp(checked, truth, kind),
        "checked": len(expected.rows),
    }


def spread(trace: Trace, rules: Rules) -> dict[str, float]:
    """Return how the weights are spread over the keys, as means over heads and queries; NaN where nothing tells.

    Rows that do not share out 1 have no entropy.
    """
    weights, summary, even = trace.weights, trace.summary, share_out(trace, rules)
    numbers = dict.fromkeys(("entropy", "effective_keys", "largest_weight", "row_sum_error"), math.nan)
    if weights is not None:
        numbers |= {"largest_weight": float(largest_weight(weights).mean()), "row_sum_error": row_sum_error(weights)}
        spreads = {"entropy": entropy, "effective_keys": effective_keys}
        return numbers | {name: float(measure(weights).mean()) for name, measure in spreads.items() if even}
    if summary is not None:
        names = ("entropy", "effective_keys", "largest_weight") if even else ("largest_weight",)
        numbers |= {name: float(getattr(summary, name).mean()) for name in names}
    return numbers


def size(heads: Array | None) -> int:
    return 0 if heads is None else heads.shape[-1]


def difference(left: Array, right: Array) -> float:
    """Return the largest absolute difference; NaN where the shapes differ and there is none."""
    return largest_error(left, right) if left.shape == right.shape else math.nan


def flops(rows: int, keys: int, heads: int, size: int, value_size: int) -> int:
    """Return `2 h t s (d + e)`: a multiplication and an addition for each term of `q k^T` and of `weights v`.

    Scaling, softmax and projections are not counted. Source: FlashAttention, `benchmarks/benchmark_flash_attention.py`.
    """
    return 2 * heads * rows * keys * (size + value_size)
