"""What plain code does at the edges of a mask: NaN that leaks, and rows without keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attn_exp.diagnosis.alike import equal
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.case import Case
from attn_exp.experiment.verdict import ABSENT, HELD, REMARK, Finding
from attn_exp.rules.masks.array import Allowed


def remarks(caller: Caller, case: Case) -> Iterator[tuple[Finding, str]]:
    """Yield what a function does with NaN behind a mask, with a query that sees nothing, and with its own dropout."""
    yield from dropping(caller, case)
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


def dropping(caller: Caller, case: Case) -> Iterator[tuple[Finding, str]]:
    """Yield a remark where a function drops weights unless it is told not to; it was asked without."""
    if not caller.offer.defaults.get("dropout"):
        return
    arguments = caller.arguments(case)
    arguments.pop("dropout", None)
    answers = [caller.answer(arguments, case).output for _ in range(3)]
    if not all(equal(output, answers[0]) for output in answers):
        word = caller.offer.parameters["dropout"]
        said = f"weights are dropped unless {word}=0 is given; it was asked so"
        yield Finding("left to itself", REMARK, said), "dropout_on"


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
