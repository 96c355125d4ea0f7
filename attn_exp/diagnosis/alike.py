"""Whether two answers are the same, and the same question with other numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.case import Answer, Case, differs, expected
from attn_exp.forms.pipeline import Given


def same(one: Answer, other: Answer, case: Case, digits: int) -> bool:
    """Say whether two answers are the same, rounding apart."""
    if one.output is None or other.output is None:
        return one.output is None and other.output is None
    if one.output.shape != other.output.shape:
        return False
    return not differs(one.output, {**expected(case), "output": other.output}, digits)


def equal(one: Array | None, other: Array | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other, equal_nan=True)


def other_data(case: Case) -> Case:
    """Return the case with the same shapes and other numbers."""
    given = case.given
    if given.x is not None:
        return replace(case, given=replace(given, x=given.x[:, ::-1] * 0.7 + 0.2))
    assert given.q is not None and given.k is not None and given.v is not None
    return replace(
        case, given=Given(given.q[..., ::-1, :] * 0.7, given.k[..., ::-1] + 0.2, given.v[..., ::-1] * 1.3 + 0.1)
    )
