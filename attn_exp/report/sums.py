"""Each token's answer as a sum of values, written out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.report import words
from attn_exp.report.walk import CELLS, SIDE
from attn_exp.report.whose import labels

TERMS = 8
"""A sum writes out at most this many of its terms, the largest."""


class Sum(NamedTuple):
    """One query's answer as a sum of values: `name(token) = sum of weight v(key)`; `rest` is the share left out."""

    name: str
    token: str
    query: int
    head: int
    terms: tuple[tuple[float, str, int], ...]
    rest: float
    result: Array | None

    @property
    def is_number(self) -> bool:
        """Whether there is such a sum: weights that are NaN, as a row without keys has in some libraries, give none."""
        return not math.isnan(self.rest)


def sums(comparison: Comparison, settled: Settled) -> tuple[Sum, ...]:
    """Return each query's sum in each head; none where the variant departs from `context = weights v`."""
    trace = comparison.traces[settled.name]
    if trace.weights is None or trace.context is None or settled.mistake != "none":
        return ()
    queries, keys = labels(comparison.problem)
    whole = len(trace.weights) == 1 and not settled.output_projection
    shown = max(1, CELLS // max(1, TERMS * len(queries)))
    return tuple(
        sum_of(row, keys, "output" if whole else context_name(head, trace), token, query, head, trace.context)
        for head, matrix in enumerate(trace.weights[:shown])
        for query, (token, row) in enumerate(zip(queries, matrix, strict=True))
        if query < SIDE
    )


def context_name(head: int, trace: Trace) -> str:
    return (
        "context" if trace.weights is None or len(trace.weights) == 1 else words.CONTEXT_OF_HEAD.format(number=head + 1)
    )


def sum_of(row: Array, keys: Sequence[str], name: str, token: str, query: int, head: int, context: Array) -> Sum:
    """Write one row of weights as a sum, its largest terms in the order of the keys."""
    if np.isnan(row).any():
        return Sum(name, token, query, head, (), math.nan, None)
    chosen = sorted(key for key in np.argsort(-row, kind="stable")[:TERMS].tolist() if row[key] != 0)
    rest = float(row.sum() - row[chosen].sum()) if len(chosen) < np.count_nonzero(row) else 0.0
    result = context[head, query] if context.shape[-1] <= 8 else None
    return Sum(name, token, query, head, tuple((float(row[key]), keys[key], key) for key in chosen), rest, result)


def written(total: Sum) -> str:
    """Return a sum as text: `output(she) = 0.34 v(she) + 0.30 v(likes) + 0.36 v(coffee)`."""
    if not total.is_number:
        return f"{total.name}({total.token}) = {words.NAN_AS_WEIGHTS}"
    terms = " + ".join(f"{weight:.2f} v({key})" for weight, key, _ in total.terms) or "0"
    rest = f" {words.OTHER_VALUES.format(rest=f'{total.rest:.2f}')}" if total.rest else ""
    return f"{total.name}({total.token}) = {terms}{rest}"
