"""The pages of a class: a sheet to fill in on paper or in the browser, its key, and the grades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from markupsafe import Markup

from attn_exp.experiment.classroom.foretold import Foretold, foretold
from attn_exp.experiment.classroom.paper import Blank, Paper
from attn_exp.experiment.judging.boxes import Array
from attn_exp.problem.matrices import BIASES, MATRICES
from attn_exp.report import words
from attn_exp.report.compiled import templates
from attn_exp.report.inline import inline, policy, scripts, template_text
from attn_exp.report.numbers import decimal

FORMULAS = {
    "q": words.FORMULA_SIDE, "k": words.FORMULA_SIDE, "v": words.FORMULA_SIDE, "scores": words.FORMULA_SCORES,
    "logits": words.FORMULA_LOGITS, "capped": words.FORMULA_CAPPED, "masked": words.FORMULA_MASKED,
    "weights": words.FORMULA_WEIGHTS, "context": words.FORMULA_CONTEXT, "output": words.FORMULA_OUTPUT,
}  # fmt: skip
TURNED = {
    "q": words.TURNED_SIDE, "k": words.TURNED_SIDE, "v": words.TURNED_SIDE, "scores": words.TURNED_SCORES,
    "weights": words.TURNED_WEIGHTS, "context": words.TURNED_CONTEXT,
}  # fmt: skip


def page(paper: Paper, student: str, file: str) -> str:
    """Return the sheet: what is given, a table of blanks for each box, which the page checks as they are typed."""
    style = inline(template_text("report.css"), template_text("worksheet.css"))
    script = scripts("worksheet.js")
    return rendered(
        "worksheet.html", paper, student, style, script,
        filled=False, data=data(paper, file), foretold=[], policy=policy(style, script),
    )  # fmt: skip


def key(paper: Paper, student: str) -> str:
    """Return the key: the same boxes with what is right, and what each mistake would give."""
    style = inline(template_text("report.css"), template_text("worksheet.css"))
    mistakes = [mistake(paper, one) for one in foretold(paper)]
    return rendered(
        "worksheet.html", paper, student, style, "", filled=True, data=None, foretold=mistakes, policy=policy(style)
    )


def rendered(template: str, paper: Paper, student: str, style: str, script: str, **more: Any) -> str:
    """Return a page of a sheet."""
    return templates(autoescape=True).get_template(template).render(
        student="" if student == "key" else student, digits=paper.digits, turned=paper.turned, given=given(paper),
        boxes=[box(paper, blank) for blank in paper.blanks], style=Markup(style), script=Markup(script), **more,
    )  # fmt: skip


def grades(heads: Sequence[str], lines: Sequence[Sequence[str]], overview: Sequence[Sequence[str]]) -> str:
    """Return the page of a class: which mistake how often, and a line for each student."""
    style = inline(template_text("report.css"), template_text("worksheet.css"))
    most = max((int(count) for _, count, _ in overview), default=1)
    return templates(autoescape=True).get_template("grades.html").render(
        heads=heads, lines=lines, overview=overview, most=most, style=Markup(style), policy=policy(style)
    )  # fmt: skip


def given(paper: Paper) -> list[dict[str, Any]]:
    """Return what a sheet starts from: x and the matrices, or those of q, k and v that it does not ask, or the weights.

    What a box needs and no box before it asks is given, so that every box can be filled in from the sheet alone.
    """
    problem, turned = paper.sheet.problem, paper.turned
    asked = {blank.stage for blank in paper.blanks}
    arrays: list[tuple[str, Array | None, Sequence[str]]] = []
    if asked & {"q", "k", "v"}:
        arrays.append(("x", problem.x, problem.tokens))
    arrays += sides(paper, asked)
    arrays.append(("weights", problem.weights, problem.tokens))
    for name in (*MATRICES, *BIASES):
        projected = name[-1] in asked or (name[-1] == "o" and paper.sheet.settled.output_projection)
        arrays.append((name, problem.projections.get(name) if projected else None, ()))
    return [matrix(name, np.atleast_2d(array), rows, turned) for name, array, rows in arrays if array is not None]


def sides(paper: Paper, asked: AbstractSet[str]) -> Iterator[tuple[str, Array, Sequence[str]]]:
    """Yield q, k and v, a head at a time, as far as a sheet needs them and does not ask them."""
    exact = paper.exact
    needed = "qkv" if asked & {"context", "output"} else "qk" if asked - {"q", "k", "v"} else ""
    for side in needed:
        if side in asked or side not in exact:
            continue
        tokens = paper.sheet.problem.tokens if side == "q" else paper.sheet.problem.key_tokens
        for head, array in enumerate(exact[side], 1):
            yield words.STAGE_OF_HEAD.format(stage=side, number=head) if len(exact[side]) > 1 else side, array, tokens


def matrix(name: str, array: Array, rows: Sequence[str], turned: bool) -> dict[str, Any]:
    """Return a matrix to look at; tokens as columns where that is asked."""
    shown = array.T if turned and rows else array
    cells = [[f"{number:g}".replace("-", "−") for number in line] for line in shown.tolist()]
    return {"name": name, "rows": [] if turned else list(rows), "columns": list(rows) if turned else [], "cells": cells}


def box(paper: Paper, blank: Blank) -> dict[str, Any]:
    """Return a box: its formula, and a table for each head with what is right, written as it is asked."""
    rows, columns = (blank.columns, blank.rows) if paper.turned else (blank.rows, blank.columns)
    tables = [matrix_of(head, paper) for head in blank.right]
    return {"stage": blank.stage, "formula": formula(paper, blank), "rows": rows, "columns": columns, "tables": tables}


def matrix_of(array: Array, paper: Paper) -> list[list[str]]:
    """Return the cells of one head, written to the decimals that are asked."""
    shown = array.T if paper.turned else array
    return [[written(number, paper.digits) for number in line] for line in shown.tolist()]


def written(number: float, digits: int) -> str:
    """Write a number to the decimals that are asked; what rounds to zero has no sign."""
    return decimal(0.0 if abs(number) < 0.5 * 10.0**-digits else number, digits)


def formula(paper: Paper, blank: Blank) -> str:
    """Return how a box is computed."""
    settled, projections = paper.sheet.settled, paper.sheet.problem.projections
    text = (TURNED if paper.turned else {}).get(blank.stage, FORMULAS[blank.stage])
    if blank.stage == "weights" and "logits" not in {asked.stage for asked in paper.blanks} and settled.multiplier != 1:
        text += words.LOGIT_IS
    if blank.stage == "output" and settled.head == 1 and not settled.output_projection:
        text = words.TURNED_LONE_OUTPUT if paper.turned else words.FORMULA_LONE_OUTPUT
    side = "o" if blank.stage == "output" and settled.output_projection else blank.stage
    bias = f" + b_{side}" if f"b_{side}" in projections else ""
    after = words.TIMES_W_O if settled.output_projection else ""
    return text.format(side=blank.stage, scale=f"{settled.multiplier:.4g}", projection=after) + bias


def mistake(paper: Paper, told: Foretold) -> dict[str, Any]:
    """Return what one mistake gives in the first box that it changes."""
    made = told.made.get(told.stage)
    array = None if made is None else made if made.ndim == 3 else made[None]
    blank = next(blank for blank in paper.blanks if blank.stage == told.stage)
    fits = array is not None and array.shape == blank.right.shape
    cells = [matrix_of(head, paper) for head in array] if fits and array is not None else []
    return {"name": told.name, "says": told.says, "stage": told.stage, "tables": cells}


def data(paper: Paper, file: str) -> dict[str, Any]:
    """Return what the page checks with: every stage in full digits, and how each follows from the one before."""
    sheet = paper.sheet
    rules = sheet.settled.rules
    plain = not rules.scores and rules.normalizer.name == "softmax" and not sheet.settled.positions
    arrays = {name: nested(array if array.ndim == 3 else array[None]) for name, array in paper.exact.items()}
    projections = sheet.problem.projections if sheet.settled.output_projection else {}
    return {
        "file": file,
        "digits": paper.digits,
        "turned": paper.turned,
        "order": [blank.stage for blank in paper.blanks],
        "exact": arrays,
        "plain": bool(plain),
        "scale": sheet.settled.multiplier,
        "W_o": nested(projections["W_o"]) if "W_o" in projections else None,
        "b_o": nested(projections["b_o"]) if "b_o" in projections else None,
        "corners": {blank.stage: [list(blank.rows), list(blank.columns)] for blank in paper.blanks},
    }


def nested(array: Array) -> Any:
    """Return an array as lists; None for minus infinity, which JSON has no word for."""
    if array.ndim == 1:
        return [float(number) if np.isfinite(number) else None for number in array]
    return [nested(part) for part in array]
