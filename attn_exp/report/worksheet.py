"""The pages for a class: worksheets, answer keys, marked sheets, and the grades.

A `Paper` is a worksheet as data. Its `blanks` are the boxes to fill in, one per stage, and `exact` has the right
numbers of all stages. If it is `transposed`, tokens are columns, and the page shows the transpose of each matrix here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from typing import Any

import numpy as np
from markupsafe import Markup

from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.classroom.grading import EMPTY, FOLLOWS, UNREADABLE, WRONG, Grade, Score
from attn_exp.diagnosis.classroom.paper import Blank, Paper, PredictedMistake, predict_mistakes
from attn_exp.problem.projections import BIASES, MATRICES
from attn_exp.report.escapes import SIGN, decimal
from attn_exp.report.templating import render_page, templates

STYLES = ("report.css", "worksheet.css")


def page(paper: Paper, student: str, file: str, exam: bool = False) -> str:
    """Return the page of a sheet, which checks the numbers as they are filled in.

    The page saves the answers under the name `file`. If `exam` is set, it checks nothing and contains no right numbers.
    """
    settings = {
        "file": file,
        "digits": paper.digits,
        "transposed": paper.transposed,
        "exam": exam,
        "hides": bool(cross_values(paper)),
    }
    data = settings if exam else settings | make_answer_data(paper)
    return render_page(
        "worksheet.html",
        sheet_values(paper, student) | {"exam": exam, "data": data},
        STYLES,
        ("maths.js", "worksheet.js"),
    )


def render_printed_sheet(paper: Paper, student: str) -> str:
    return render_sheet_part(sheet_values(paper, student) | {"printed": True})


def render_solution(paper: Paper, student: str) -> str:
    """Return the answer key: the filled-in sheet, and the results of each mistake.

    Mistakes with the same results share an entry.
    """
    entries = dict[str, dict[str, Any]]()
    for result in predict_mistakes(paper):
        # results count as equal if they are equal once rounded as on the sheet; adding 0.0 turns -0.0 into 0.0
        key = str([np.round(result.stages.get(blank.stage, 0.0), paper.digits) + 0.0 for blank in paper.blanks])
        if key in entries:
            entries[key]["name"] += f", {result.name}"
            entries[key]["says"] += f" {result.says}"
        else:
            entries[key] = format_mistake(paper, result)
    return render_sheet_part(sheet_values(paper, student) | {"filled": True, "foretold": list(entries.values())})


def render_sheet_part(shown: dict[str, Any]) -> str:
    return templates(autoescape=True).get_template("worksheet_one.html").render(shown)


def to_print(parts: Sequence[str]) -> str:
    """Join sheets or answer keys for printing; each starts on a new page."""
    return render_page("worksheets.html", {"parts": list(map(Markup, parts))}, STYLES)


def sheet_values(paper: Paper, student: str) -> dict[str, Any]:
    return {
        "student": "" if student == "key" else student,
        "digits": paper.digits,
        "transposed": paper.transposed,
        "given": list_given_arrays(paper),
        "boxes": [format_box(paper, blank) for blank in paper.blanks],
        "filled": False,
        "exam": False,
        "printed": False,
        "foretold": [],
    }


def grades(**shown: Any) -> str:
    """Return the page with the grades.

    `shown` has the variables of the template: `overview` (how often each mistake was made), `boxes` (points by box),
    `lines` with their `heads` (one per student), `missing` (who handed in nothing), and `seal` (a hash of the table).
    """
    return render_page("grades.html", shown, STYLES)


def list_given_arrays(paper: Paper) -> list[dict[str, Any]]:
    """Return the arrays that a sheet gives: everything that its boxes need, unless another box asks for it."""
    box_stages, problem = {blank.stage for blank in paper.blanks}, paper.sheet.problem
    arrays = [*list_inputs(paper, box_stages), *list_angles(paper, box_stages), *list_later_stages(paper, box_stages)]
    if problem.weights is not None:
        arrays.append(("weights", problem.weights, problem.tokens))
    # W_q and b_q are given if a box asks for q, and so on; W_o and b_o if a box asks for an output that they compute
    projected = box_stages | ({"o"} if "output" in box_stages and paper.sheet.settled.output_projection else set())
    matrices = [name for name in (*MATRICES, *BIASES) if name[2:] in projected and name in problem.projections]
    arrays += [(name, problem.projections[name], ()) for name in matrices]
    return [format_matrix(name, np.atleast_2d(array), rows, paper) for name, array, rows in arrays]


GivenArray = tuple[str, Array, Sequence[str]]
"""The name of an array, the array, and the names of its rows."""


def list_inputs(paper: Paper, box_stages: AbstractSet[str]) -> Iterator[GivenArray]:
    problem = paper.sheet.problem
    positions = [position for position in paper.sheet.settled.positions if position.changes_x]
    sides_of_x = "q" if problem.memory is not None else "qkv"
    tokens = problem.key_tokens if problem.memory is None else problem.tokens
    for name, array, names, sides in (
        ("x", problem.x, tokens, sides_of_x),
        ("memory", problem.memory, problem.key_tokens, "kv"),
    ):
        if array is not None and box_stages & set(sides):
            with_positions = reduce(lambda total, position: position.embed(total), positions, array)
            yield f"{name} with positions" if positions else name, with_positions, names


def list_angles(paper: Paper, box_stages: AbstractSet[str]) -> Iterator[GivenArray]:
    """Yield the cosines and sines that rotate q, if a box asks for q, and those that rotate k, if a box asks for k.

    A table has one column per rotated pair. q and k share their tables if queries and keys are the same tokens.
    """
    tokens = {"q": paper.sheet.problem.tokens, "k": paper.sheet.problem.key_tokens}
    rotations = {side: rotation for side, rotation in paper.rotations.items() if side in box_stages and side in tokens}
    is_shared = len(rotations) == 2 and tokens["q"] == tokens["k"]
    for side, rotation in rotations.items():
        if not (is_shared and side == "q") and rotation.pairs:
            suffix = "" if is_shared or len(rotations) == 1 else f" of {side}"
            yield f"cos{suffix}", rotation.cos, tokens[side]
            yield f"sin{suffix}", rotation.sin, tokens[side]


def list_later_stages(paper: Paper, box_stages: AbstractSet[str]) -> Iterator[GivenArray]:
    # q, k and v if boxes need them but none asks for them; then the numbers that are added to the logits
    problem = paper.sheet.problem
    sides = "qkv" if box_stages & {"context", "output"} else "qk" if box_stages - {"q", "k", "v"} else ""
    for side in sides:
        if side not in box_stages and side in paper.exact:
            yield from split_heads(side, paper.exact[side], problem.tokens if side == "q" else problem.key_tokens)
    if paper.added is not None and box_stages & {"masked", "weights", "context", "output"}:
        same_in_all_heads = (paper.added == paper.added[:1]).all()
        yield from split_heads("added", paper.added[:1] if same_in_all_heads else paper.added, problem.tokens)


def split_heads(name: str, heads: Array, tokens: Sequence[str]) -> Iterator[GivenArray]:
    for number, array in enumerate(heads, start=1):
        yield f"{name}, head {number}" if len(heads) > 1 else name, array, tokens


def format_matrix(name: str, array: Array, rows: Sequence[str], paper: Paper) -> dict[str, Any]:
    """Return the data of a given matrix, with more digits than the answers have.

    Tokens are columns if the sheet is transposed.
    """
    transposed, digits = paper.transposed, max(6, paper.digits + 4)
    oriented = array.T if transposed and rows else array
    cells = [
        [f"{number:.{digits}g}".replace("-", "−").replace("inf", "∞") for number in line] for line in oriented.tolist()
    ]
    return {
        "name": name,
        "rows": [] if transposed else list(rows),
        "columns": list(rows) if transposed else [],
        "cells": cells,
    }


def format_box(paper: Paper, blank: Blank) -> dict[str, Any]:
    rows, columns = (blank.columns, blank.rows) if paper.transposed else (blank.rows, blank.columns)
    tables = [format_numbers(head, paper) for head in blank.right]
    return {
        "stage": blank.stage,
        "formula": format_formula(paper, blank),
        "rows": rows,
        "columns": columns,
        "tables": tables,
    }


def format_numbers(array: Array, paper: Paper) -> list[list[str]]:
    oriented = array.T if paper.transposed else array
    return [[format_number(number, paper.digits) for number in row] for row in oriented]


def format_number(number: float, digits: int) -> str:
    """Return a number with the decimals of a sheet; a number that rounds to zero has no sign."""
    return "no number" if math.isnan(number) else decimal(0.0 if abs(number) < 0.5 * 10.0**-digits else number, digits)


def format_mistake(paper: Paper, result: PredictedMistake) -> dict[str, Any]:
    """Return the data of a mistake: its name, what it does, and the numbers of the first box that it changes.

    There are no numbers if the mistake changes the shape of the box. Rows in which it divides by zero have none either.
    """
    numbers, tables = result.stages.get(result.stage, np.zeros(0)), []
    if numbers.shape == paper.exact[result.stage].shape:
        shown = np.where((numbers < np.inf).all(axis=-1, keepdims=True), numbers, np.nan)
        tables = [format_numbers(head, paper) for head in shown.reshape(-1, *shown.shape[-2:])]
    return {"name": result.name, "says": result.says, "stage": result.stage, "tables": tables}


def make_answer_data(paper: Paper) -> dict[str, Any]:
    """Return what a page needs to check answers: the right numbers of each stage, and how each stage is computed."""
    sheet = paper.sheet
    projections = sheet.problem.projections if sheet.settled.output_projection else {}
    return {
        "rooms": {stage: paper.find_tolerance(stage) for stage in paper.rotations},
        "order": [blank.stage for blank in paper.blanks],
        "scratch": list(sheet.scratch or ()),
        "exact": {name: to_lists(array if array.ndim == 3 else array[None]) for name, array in paper.exact.items()},
        "added": None if paper.added is None else to_lists(paper.added),
        "cap": paper.cap,
        "extra": paper.extra,
        "normalizer": sheet.settled.rules.normalizer.name,
        "scale": sheet.settled.multiplier,
        **{name: to_lists(projections[name]) if name in projections else None for name in ("W_o", "b_o")},
    }


def cross_values(paper: Paper) -> dict[str, float]:
    """Return the number that a cross stands for, by stage; empty if nothing is masked."""
    hides = paper.added is not None and np.isneginf(paper.added).any()
    return {"masked": -math.inf, "weights": 0.0} if hides else {}


def to_lists(array: Array) -> Any:
    """Return an array as nested lists for JSON, with None for minus infinity."""
    return np.where(np.isfinite(array), array, np.array(None)).tolist()


CHAIN = ("output", "context", "weights", "masked", "capped", "logits", "scores")
"""The stages after q, k and v, from the last to the first."""


def format_formula(paper: Paper, blank: Blank) -> str:
    """Return the formula of a box, and the formulas of the stages between the previous box and this one."""
    formula_by_stage, box_stages = make_formulas(paper), {other.stage for other in paper.blanks}
    clauses = [formula_by_stage[blank.stage]]
    if blank.stage == "masked" and cross_values(paper):
        clauses.append("written -inf or x")
    for stage in CHAIN[CHAIN.index(blank.stage) + 1 :] if blank.stage in CHAIN else ():
        if stage in box_stages or stage not in paper.exact or (stage == "weights" and paper.has_given_weights):
            break
        if not is_like_previous(paper, stage):
            clauses.append(formula_by_stage[stage].replace("logits = scores", "logit = score"))
    return ", ".join(clauses)


def is_like_previous(paper: Paper, stage: str) -> bool:
    # a stage that equals the one before it needs no formula
    return (
        (stage == "capped" and paper.cap is None)
        or (stage == "masked" and paper.added is None)
        or (stage == "context" and is_context_the_output(paper))
    )


def make_formulas(paper: Paper) -> dict[str, str]:
    settled, projections, transposed = paper.sheet.settled, paper.sheet.problem.projections, paper.transposed
    # the stage to which something is added, and the stage that is normalized
    before_added = "logits" if paper.cap is None else "capped"
    normalized = before_added if paper.added is None else "masked"
    line, cap = "column" if transposed else "row", f"{paper.cap or 0:.10g}"
    extra_logits = ", ".join(f"{number:.10g}" for number in dict.fromkeys(paper.extra))
    weights = {
        "sum": f"weights = {normalized} / sum of {normalized} over the row",
        "sigmoid": f"weights = 1 / (1 + exp(−{normalized})), each separately",
    }.get(settled.rules.normalizer.name, f"weights = exp({normalized}) / sum of exp({normalized}) over the {line}")
    stages = {
        "scores": "scores = kᵀ q: a column for each query" if transposed else "scores = q kᵀ",
        "logits": "logits = scores" if settled.multiplier == 1 else f"logits = scores × {format_scale(paper)}",
        "capped": f"capped = {cap} tanh(logits / {cap})",
        "masked": f"masked = {before_added} + added{', −∞ where a token may not look' if cross_values(paper) else ''}",
        "weights": weights + (f", with an extra logit in the sum: {extra_logits}" if extra_logits else ""),
        "context": f"context = {'v weights' if transposed else 'weights v'}",
        "output": format_output(paper),
    }
    for side in ("q", "k", "v"):
        source = "x" if side == "q" or paper.sheet.problem.memory is None else "memory"
        bias = f" + b_{side}" if f"b_{side}" in projections else ""
        stages[side] = f"{side} = {f'W_{side}ᵀ {source}' if transposed else f'{source} W_{side}'}{bias}"
    return {
        stage: f"{text}{describe_split(paper, stage)}{describe_rotation(paper, stage)}"
        for stage, text in stages.items()
    }


def format_output(paper: Paper) -> str:
    settled, transposed = paper.sheet.settled, paper.transposed
    if is_context_the_output(paper):
        return f"output = {'v weights' if transposed else 'weights v'}"
    heads = f"context of all heads, {'one below the other' if transposed else 'side by side'}"
    if not settled.output_projection:
        return f"output = {heads}"
    bias = " + b_o" if "b_o" in paper.sheet.problem.projections else ""
    return f"output = {f'W_oᵀ times the {heads}' if transposed else f'{heads}, times W_o'}{bias}"


def describe_rotation(paper: Paper, stage: str) -> str:
    """Return the end of a formula that says how positions rotate the columns; empty if they do not."""
    rotation = paper.rotations.get(stage)
    if rotation is None or not rotation.pairs:
        return ""
    pairs = ", ".join(f"({left + 1}, {right + 1})" for left, right in rotation.pairs)
    lines = "rows" if paper.transposed else "columns"
    heads = " of each head" if len(paper.exact[stage]) > 1 else ""
    prefix, suffix = ("", "") if len(rotation.pairs) == 1 else ("the pairs of ", " and the pair")
    return (
        f", then {prefix}{lines} (a, b) = {pairs}{heads} rotated to (a cos − b sin, a sin + b cos), "
        f"with the cos and sin of the token{suffix}"
    )


HEADS_POOLED = {
    "first": "cut into heads of {width} columns, of which the first {heads.shared} are used",
    "mean": "cut into {heads.given} heads of {width} columns, then averaged in {heads.shared} groups of adjacent heads",
}


def describe_split(paper: Paper, stage: str) -> str:
    """Return the end of a formula that says how columns become heads, or how many query heads share a head."""
    counts = paper.sheet.settled.heads
    if stage in ("scores", "context") and counts.shared < counts.query:
        query_side, key_side = ("q", "k") if stage == "scores" else ("weights", "v")
        return f", {counts.query // counts.shared} heads of {query_side} per head of {key_side}"
    if stage not in ("q", "k", "v") or stage not in paper.exact:
        return ""
    matrix, (count, _, width) = paper.sheet.problem.projections.get(f"W_{stage}"), paper.exact[stage].shape
    if stage != "q" and matrix is not None and counts.shared < counts.given:
        return f", {HEADS_POOLED[counts.pool].format(width=width, heads=counts)}"
    is_cut = count > 1 and (matrix is None or matrix.shape[1] == count * width)
    return f", cut into heads of {width} columns" if is_cut else ""


def is_context_the_output(paper: Paper) -> bool:
    return paper.sheet.settled.head == 1 and not paper.sheet.settled.output_projection


def format_scale(paper: Paper) -> str:
    """Return the scale as text: 1/√d has four digits, and a number from the settings as many as it needs, up to ten."""
    settled = paper.sheet.settled
    if settled.scale is True:
        return f"{settled.multiplier:.4g} (1/√{round(settled.multiplier**-2)})"
    return f"{settled.multiplier:.10g}"


MARKS = {WRONG: "✗", FOLLOWS: "→", UNREADABLE: "?", EMPTY: "–"}
"""Marks next to the numbers of a marked sheet, so that it can be read without colours."""

MEANING = {
    WRONG: "✗ wrong: the right number, given your earlier ones, is below",
    FOLLOWS: "→ right, though computed from a wrong number",
    UNREADABLE: "? cannot be read",
    EMPTY: "– left empty: the right number is below",
}

ON_PAPER = {
    "softmax_over_queries": "each row of the weights must sum to 1",
    "softmax_over_all": "each row of the weights must sum to 1",
    "causal_flipped": "query i sees keys j <= i",
    "projection_transposed": "q = x W_q, with the matrix as it is given",
}
"""How to correct mistakes on paper, if their usual remedy is code; for sheets with tokens as rows."""


def render_marked_page(title: str, parts: Sequence[str]) -> str:
    return render_page("marked.html", {"title": title, "parts": list(map(Markup, parts))}, STYLES)


def render_marked_sheet(paper: Paper, student: str, grade: Grade, numbers: Arrays, scores: Sequence[Score]) -> str:
    score_by_stage = {score.stage: score for score in scores}
    states = {} if is_untouched(grade) else grade.cells
    boxes = [
        {
            "stage": blank.stage,
            "formula": format_formula(paper, blank),
            "points": format_points(score_by_stage[blank.stage].points),
            "most": format_points(score_by_stage[blank.stage].most),
            "tables": list(make_marked_tables(paper, blank, grade.expected, states, numbers.get(blank.stage))),
        }
        for blank in paper.blanks
    ]
    (points, most), sentence = total_points(scores), verdict(grade)
    legend = [text for state, text in MEANING.items() if any((cells == state).any() for cells in states.values())]
    remedies = dict.fromkeys(ON_PAPER.get(remark.name, remark.remedy) for remark in grade.remarks if remark.remedy)
    remedy = "; ".join(remedies).replace("each row", "each column" if paper.transposed else "each row")
    return templates(autoescape=True).get_template("marked_one.html").render(
        student=student, boxes=boxes, points=points, most=most, remedy=remedy,
        said=SIGN.sub("−", sentence[:1].upper() + sentence[1:]), legend="; ".join(legend),
    )  # fmt: skip


def verdict(grade: Grade) -> str:
    if is_untouched(grade):
        return "nothing is filled in"
    return grade.summary or ("all right" if grade.points == grade.most else "no number is wrong; some are missing")


def is_untouched(grade: Grade) -> bool:
    return all((states == EMPTY).all() for states in grade.cells.values())


def make_marked_tables(
    paper: Paper, blank: Blank, expected_by_stage: Arrays, states_by_stage: Arrays, answers: Array | None
) -> Iterator[dict[str, Any]]:
    """Yield the tables of a box, one per head; a wrong cell has a mark and the right number."""
    rows, columns = (blank.columns, blank.rows) if paper.transposed else (blank.rows, blank.columns)
    shape = blank.right.shape
    values = np.full(shape, np.nan) if answers is None else answers.reshape(shape)
    expected = expected_by_stage.get(blank.stage, paper.exact[blank.stage]).reshape(shape)
    states = states_by_stage.get(blank.stage, np.full(shape, ""))
    for head in range(shape[0]):
        of_head = (array[head].T if paper.transposed else array[head] for array in (values, expected, states))
        lines = [
            [
                format_cell(paper, float(value), float(right), str(state))
                for value, right, state in zip(*row, strict=True)
            ]
            for row in zip(*of_head, strict=True)
        ]
        name = f"{blank.stage}, head {head + 1}" if shape[0] > 1 else blank.stage
        yield {"name": name, "columns": columns, "lines": list(zip(rows, lines, strict=True))}


def format_cell(paper: Paper, number: float, correct: float, state: str) -> dict[str, str]:
    text = "" if np.isnan(number) else format_number(number, paper.digits)
    if abs(number - round(number, paper.digits)) > 1e-9:
        text = f"{number:.6g}"
    correction = format_number(correct, paper.digits) if state in (WRONG, UNREADABLE, EMPTY) else ""
    return {"shown": text, "state": state, "mark": MARKS.get(state, ""), "should": correction}


def total_points(scored: Sequence[Score]) -> tuple[str, str]:
    """Return the total points of all boxes, and the maximum."""
    return format_points(sum(score.points for score in scored)), format_points(sum(score.most for score in scored))


def format_points(points: float) -> str:
    """Return points rounded to tenths, without the decimal if it is zero: `2.5`, `3`."""
    return f"{round(points, 1):g}"
