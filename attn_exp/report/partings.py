"""The first stage at which two computations differ, and how right each of them is."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.row import Row
from attn_exp.experiment.sameness import SAME_FUNCTION
from attn_exp.report import words
from attn_exp.report.explain import spoken


def sentences(comparison: Comparison) -> list[str]:
    """Say of each other function where it first differs from the first row's, and of wrong answers how wrong."""
    rows = [row for row in comparison.rows if row.same_as]
    leaders = {row.same_as: row for row in reversed(rows)}
    others = [row for row in rows if leaders[row.same_as] is row and row.same_as != rows[0].same_as]
    checked = [row for row in rows if row.checked]
    last = accuracy(checked, len(comparison.problem.tokens)) if checked else words.NONE_CHECKED
    return [*(parting_sentence(comparison, rows[0], row) for row in others[:3]), last]


def parting_sentence(comparison: Comparison, first: Row, row: Row) -> str:
    """Say at which stage one variant first differs from the first, and by how much there."""
    mine, theirs = (getattr(comparison.traces[side.variant], row.differs_at) for side in (row, first))
    filled = {"variant": row.variant, "first": first.variant, "stage": spoken(row.differs_at)}
    if mine.shape == theirs.shape:
        return words.PARTS_BY.format(far=apart(mine, theirs), **filled)
    if row.head == first.head:
        return words.PARTS_IN_SHAPE.format(**filled)
    return (words.PARTS_INTO_HEAD if row.head == 1 else words.PARTS_INTO_HEADS).format(heads=row.head, **filled)


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
        near(group, whom(group, len(rows), bool(wrong), kind if kinds[1:] else ""), queries)
        for kind, group in zip(kinds, groups, strict=True)
    ]
    for row in wrong:
        text = words.WRONG_BY if row.mistake == "none" else words.WRONG_BY_MISTAKE
        parts.append(text.format(variant=row.variant, error=row.error, mistake=row.mistake))
    return f"{'; '.join(parts)}."


def near(rows: list[Row], named: str, queries: int) -> str:
    """Say how near the reference rows are, which to equal is no distance, and where it was asked if not everywhere."""
    error, checked = max(row.error for row in rows), min(row.checked for row in rows)
    sentence = (words.WITHIN if error else words.EQUALS).format(whom=named, error=error)
    if checked >= queries:
        return sentence
    return words.AT_QUERIES.format(sentence=sentence, checked=checked, queries=queries)


def whom(right: list[Row], count: int, others: bool, kind: str) -> str:
    """Name the rows of one type that are right, of all the run's; `others` of them are wrong."""
    alone = count > 1 == len(right)
    named = right[0].variant if alone else words.EVERY_OTHER_VARIANT if others else words.EVERY_VARIANT
    return words.WHOM_IN_TYPE.format(whom=named, type=kind) if kind else named
