"""Where variants part: the first stage at which two computations differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.metrics.errors import error_in_ulp, largest_error
from attn_exp.experiment.row import Row
from attn_exp.experiment.sameness import SAME_FUNCTION
from attn_exp.forms import coarser
from attn_exp.forms.trace import Trace
from attn_exp.report.explain import SPOKEN


@dataclass(frozen=True)
class Parting:
    """The first stage at which a variant differs from another: by how much, or None where even the shapes differ."""

    stage: str
    difference: float | None


def parting(mine: Trace, other: Trace, kind: Any = None) -> Parting | None:
    """Return where two traces part; None where every stage that both formed is the same, to rounding.

    `kind` is the coarser of the types that they were computed in, where that is not their arrays' own.
    """
    theirs = dict(other.stages())
    for name, left in mine.stages():
        right = theirs.get(name)
        if right is None:
            continue
        if left.shape != right.shape:
            return Parting(name, None)
        mine_finite, other_finite = (np.where(np.isneginf(array), 0.0, array) for array in (left, right))
        if error_in_ulp(mine_finite, other_finite, kind) > SAME_FUNCTION:
            return Parting(name, largest_error(mine_finite, other_finite))
    return None


def told(comparison: Comparison) -> list[str]:
    """Say of each other function where it parts from the first row's, and of each wrong answer how wrong it is."""
    rows = [row for row in comparison.rows if row.same_as]
    leaders = {row.same_as: row for row in reversed(rows)}
    others = [row for row in rows if leaders[row.same_as] is row and row.same_as != rows[0].same_as]
    return [sentence(comparison, rows[0], row) for row in others[:3]] + [accuracy(rows)]


def sentence(comparison: Comparison, first: Row, row: Row) -> str:
    """Say where one variant parts from the first."""
    kind = coarser(*(np.dtype(each.computed_in) for each in (row, first)))
    found = parting(comparison.traces[row.variant], comparison.traces[first.variant], kind)
    if found is None:
        return f"{row.variant} is {first.variant} up to the output."
    stage = SPOKEN.get(found.stage, found.stage)
    if found.difference is None:
        heads = f"{row.head} {'head' if row.head == 1 else 'heads'}"
        how = f", which it splits into {heads}" if row.head != first.head else ""
        return f"{row.variant} parts from {first.variant} at the {stage}{how}."
    return f"{row.variant} parts from {first.variant} at the {stage}, by up to {found.difference:.2g}."


def accuracy(rows: list[Row]) -> str:
    """Say how right the variants are, apart by the types that they compute in."""
    wrong = [row for row in rows if row.error_ulp > SAME_FUNCTION]
    right = [row for row in rows if row not in wrong]
    kinds = list(dict.fromkeys(row.computed_in for row in right))
    groups = [[row for row in right if row.computed_in == kind] for kind in kinds]
    parts = [
        f"{whom(each, len(rows), bool(wrong))}{f' in {kind}' if kinds[1:] else ''} is within "
        f"{max(row.error for row in each):.1g} of the scalar reference"
        for kind, each in zip(kinds, groups, strict=True)
    ]
    for row in wrong:
        why = f" (mistake={row.mistake})" if row.mistake != "none" else ""
        parts.append(f"{row.variant} is wrong by up to {row.error:.2g}{why}")
    return f"{'; '.join(parts)}."


def whom(right: list[Row], count: int, others: bool) -> str:
    """Name the rows of one type that are right, of all the run's; `others` of them are wrong."""
    if count > 1 == len(right):
        return right[0].variant
    return "Every other variant" if others else "Every variant"
