"""Explain numbers: whether they are right, which mistake gives them, or where a slip is and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np

from attn_exp.config.schema import Config
from attn_exp.diagnosis.explaining.numbers import Numbers, catalogue
from attn_exp.diagnosis.judging.own_form import prepared_with_code
from attn_exp.diagnosis.recipes.candidates import Explained, explained, what_a_setting_computes, what_mistakes_compute
from attn_exp.diagnosis.sheets.boxes import box, read_cells
from attn_exp.diagnosis.sheets.worksheet import (
    Sheet,
    Slip,
    after_slips,
    every_slip,
    is_slip,
    stages,
    sums,
)
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.executing import STAGES, follows_steps
from attn_exp.experiment.variant import Settled
from attn_exp.experiment.verdict import HELD, REMARK, Finding, Verdict, decide
from attn_exp.problem.problem import Problem


def explain(config: Config, answers: Mapping[str, Any], asked: str = "") -> Verdict:
    """Return which computation gives the numbers of some stages, passed as texts, arrays or file names.

    The first variant of the configuration is the right computation.

    Raises:
        UserError: no such stage, numbers that cannot be read or do not fit it, or settings that do not fit.
    """
    start = perf_counter()
    _, problem, variants = prepared_with_code(config)
    sheet = filled_in(variants[0], problem, answers)
    with np.errstate(all="ignore"):  # a person may give numbers of any size
        verdict = verdict_on(sheet, {variant.name: variant for variant in variants})
    name = " and ".join(f"answer.{one.stage}" for one in sheet.boxes)
    return decide(replace(verdict, name=name, asked=asked or variants[0].name, seconds=perf_counter() - start))


def filled_in(settled: Settled, problem: Problem, answers: Mapping[str, Any]) -> Sheet:
    if settled.mistakes:
        raise UserError(
            f"mistake={settled.mistake}: the run says what is right; explain finds the mistake, leave it out"
        )
    empty = Sheet(settled, problem, ())
    exact = stages(empty, empty.right)
    if settled.refused or exact is None or not follows_steps(settled, problem):
        raise UserError(f"variant={settled.name} is not computed in the steps that explain knows; try variant=[matrix]")
    formed = [stage for stage in STAGES if stage in exact]
    if not answers:
        raise UserError(f"nothing to explain; give answer.STAGE=FILE or numbers, STAGE one of {', '.join(formed)}")
    for stage in answers:
        if stage not in formed:
            raise UserError(unknown(stage, formed, "stage of an answer"))
    order = sorted(answers, key=STAGES.index)
    boxes = (box(stage, read_cells(answers[stage], f"answer.{stage}"), exact[stage], problem) for stage in order)
    return Sheet(settled, problem, tuple(boxes))


def verdict_on(sheet: Sheet, variants: Mapping[str, Settled]) -> Verdict:
    evidence = Numbers(sheet, cache(partial(catalogue, sheet)), variants=variants)
    found = explained(evidence)
    if found.reading is not None:
        findings = [Finding(one.stage, HELD, one.counted) for one in found.reading.sheet.boxes]
        remark = found.reading.remark
        findings += [Finding("a harmless difference", REMARK, remark)] if remark else []
        return Verdict("", True, (), "attention as requested", tuple(findings))
    if found.names or found.setting:
        return verdict_of_mistake(found)
    last = evidence.lenient[sheet] if found.view is None else found.view.sheet
    return verdict_of_slips(last, found.slips or every_slip(last))


def verdict_of_mistake(found: Explained) -> Verdict:
    """Return the verdict on numbers explained by a mistake or another setting, with a slip if there is one.

    A match that may be chance is not claimed.
    """
    findings = tuple(after_slips(found.view.sheet, every_slip(found.view.sheet)))
    if found.names and found.slip is None and found.view.tell_too_little(len(found.view.known())):
        alike = (tuple(sorted(found.names)), *found.alike)
        return Verdict("", False, (), TOO_FEW, findings, alike=alike)
    setting = what_a_setting_computes(found.setting)
    computes = what_mistakes_compute(found.names) if found.names else setting
    slip = found.slip
    computes = computes if slip is None else f"{computes} There is also a slip, in {slip.box.stage}: {slip}"
    return Verdict("", False, found.names, computes, findings, alike=found.alike)


TOO_FEW = "something else: no known mistake explains it for certain: these numbers are too few, or have too few digits"


def verdict_of_slips(sheet: Sheet, slips: Sequence[Slip | None]) -> Verdict:
    bad = [slip for slip in slips if slip]
    findings = (*after_slips(sheet, slips), *sums(sheet))
    if not is_slip(slips):
        computes = f"something else: no known mistake explains it; {bad[0].box.stage} is the first that is wrong"
        return Verdict("", False, (), computes, findings)
    onward = sheet.boxes[-1] is not bad[0].box and len(bad) == 1
    rest = "; all that follows is computed correctly from it" if onward else ""
    computes = f"attention as requested, except for a slip in {bad[0].box.stage}: {bad[0]}{rest}"
    return Verdict("", False, (), computes, findings)
