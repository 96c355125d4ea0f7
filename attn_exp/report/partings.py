"""The first stage at which two computations differ, and how right each of them is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.row import Row
from attn_exp.experiment.sameness import SAME_FUNCTION
from attn_exp.report.explain import spoken

Array = NDArray[Any]


def sentences(comparison: Comparison) -> list[str]:
    """Say of each other function where it first differs from the first row's, and of wrong answers how wrong."""
    rows = [row for row in comparison.rows if row.same_as]
    leaders = {row.same_as: row for row in reversed(rows)}
    others = [row for row in rows if leaders[row.same_as] is row and row.same_as != rows[0].same_as]
    checked = [row for row in rows if row.checked]
    last = accuracy(checked, len(comparison.problem.tokens)) if checked else "No variant was checked."
    return [*(parting_sentence(comparison, rows[0], row) for row in others[:3]), last]


def parting_sentence(comparison: Comparison, first: Row, row: Row) -> str:
    """Say at which stage one variant first differs from the first, and by how much there."""
    mine, theirs = (getattr(comparison.traces[side.variant], row.differs_at) for side in (row, first))
    stage = spoken(row.differs_at)
    if mine.shape != theirs.shape:
        heads = f"{row.head} {'head' if row.head == 1 else 'heads'}"
        how = f", which it splits into {heads}" if row.head != first.head else ""
        return f"{row.variant} first differs from {first.variant} in the {stage}{how}."
    return f"{row.variant} first differs from {first.variant} in the {stage}, by up to {apart(mine, theirs):.2g}."


def apart(mine: Array, theirs: Array) -> float:
    """Return the largest difference; a masked place, -inf in one alone, counts as far as the number in the other."""
    return largest_error(*(np.where(np.isneginf(array), 0.0, array) for array in (mine, theirs)))


def accuracy(rows: list[Row], queries: int = 0) -> str:
    """Say how right the variants are, apart by the types that they compute in, and at how many of so many queries."""
    wrong = [row for row in rows if row.error_ulp > SAME_FUNCTION]
    right = [row for row in rows if row not in wrong]
    kinds = list(dict.fromkeys(row.computed_in for row in right))
    groups = [[row for row in right if row.computed_in == kind] for kind in kinds]
    parts = [
        f"{whom(group, len(rows), bool(wrong))}{f' in {kind}' if kinds[1:] else ''} "
        f"{near(max(row.error for row in group))}{some_of(group, queries)}"
        for kind, group in zip(kinds, groups, strict=True)
    ]
    for row in wrong:
        why = f" (mistake={row.mistake})" if row.mistake != "none" else ""
        parts.append(f"{row.variant} is wrong by up to {row.error:.2g}{why}")
    return f"{'; '.join(parts)}."


def near(error: float) -> str:
    """Say how near the reference an answer is; to be no distance from it is to equal it."""
    return f"is within {error:.1g} of the scalar reference" if error else "equals the scalar reference in every digit"


def some_of(rows: list[Row], queries: int) -> str:
    """Say at how many queries the reference was asked, where it was not at all of them."""
    checked = min(row.checked for row in rows)
    return f" at the {checked:,} of {queries:,} queries that it checked" if checked < queries else ""


def whom(right: list[Row], count: int, others: bool) -> str:
    """Name the rows of one type that are right, of all the run's; `others` of them are wrong."""
    if count > 1 == len(right):
        return right[0].variant
    return "Every other variant" if others else "Every variant"
