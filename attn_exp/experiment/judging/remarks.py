"""What plain code does at the edges of a mask: NaN that leaks, and rows without keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attn_exp.experiment.judging.call import Caller
from attn_exp.experiment.judging.case import Case
from attn_exp.experiment.judging.verdict import ABSENT, HELD, REMARK, Finding
from attn_exp.rules.masks.array import Allowed


def remarks(caller: Caller, case: Case) -> Iterator[tuple[Finding, str]]:
    """Yield what a function that takes a mask does with NaN behind it, and with a query that sees nothing."""
    if not caller.offer.takes("mask") or case.given.q is None or case.given.v is None:
        yield Finding("NaN behind a mask", ABSENT), ""
        yield Finding("rows without keys", ABSENT), ""
        return
    rows, keys = case.given.q.shape[2], case.given.v.shape[2]
    seen = np.ones((rows, keys), np.bool_)
    seen[:, -1] = False
    yield leak(caller, masked(case, seen))
    seen = np.ones((rows, keys), np.bool_)
    seen[rows // 2] = False
    yield blind(caller, masked(case, seen), rows // 2)


def masked(case: Case, seen: np.ndarray) -> Case:
    return replace(case, recipe=case.recipe.with_rules(masks=(Allowed(seen),)))


def leak(caller: Caller, case: Case) -> tuple[Finding, str]:
    assert case.given.v is not None
    values = case.given.v.copy()
    values[..., -1, :] = np.nan
    output = caller(replace(case, given=replace(case.given, v=values))).output
    if output is None:
        return Finding("NaN behind a mask", ABSENT), ""
    if np.isnan(output).any():
        known = ", as this library's own does" if caller.asked.leaks else ""
        return Finding("NaN behind a mask", REMARK, f"it reaches the answer{known}"), "" if known else "nan_leaks"
    return Finding("NaN behind a mask", HELD), ""


def blind(caller: Caller, case: Case, row: int) -> tuple[Finding, str]:
    output = caller(case).output
    if output is None:
        return Finding("rows without keys", ABSENT), ""
    kind = kind_of(output[..., row, :], case)
    if kind == "nan":
        expected = caller.asked.empty == "nan"
        return Finding("rows without keys", REMARK, "NaN"), "" if expected else "empty_row_nan"
    return Finding("rows without keys", HELD, kind), ""


def kind_of(row: np.ndarray, case: Case) -> str:
    """Return what a row without keys gives: nan, zeros, the mean of all values, or other numbers."""
    assert case.given.v is not None
    if np.isnan(row).any():
        return "nan"
    mean = np.repeat(case.given.v.mean(axis=2), case.recipe.heads // case.recipe.groups, axis=1)
    return (
        "zeros" if not row.any() else "the mean of all values" if np.allclose(row, mean, atol=1e-3) else "other numbers"
    )
