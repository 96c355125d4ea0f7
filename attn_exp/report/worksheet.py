"""The pages of a class: a sheet to fill in, with how each box is computed, its key, and the grades."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce
from typing import Any

import numpy as np
from markupsafe import Markup

from attn_exp.arrays import Array
from attn_exp.diagnosis.classroom.foretold import Foretold, foretold
from attn_exp.diagnosis.classroom.paper import Blank, Paper
from attn_exp.problem.matrices import BIASES, MATRICES
from attn_exp.report import words
from attn_exp.report.inline import policy, scripts, styles, template_text
from attn_exp.report.numbers import decimal, kinds
from attn_exp.report.templating import templates


def page(paper: Paper, student: str, file: str, exam: bool = False) -> str:
    """Return the sheet: what is given, a table of blanks for each box, which the page checks as they are typed.

    The page of an `exam` checks nothing, and nothing in it says what is right.
    """
    style = styles(template_text("report.css"), template_text("worksheet.css"))
    script = scripts("worksheet.js")
    return rendered(
        "worksheet.html", paper, student, filled=False, exam=exam, foretold=[], printed=False,
        data=blank_data(paper, file) if exam else data(paper, file),
        style=Markup(style), script=Markup(script), policy=policy(style, script),
    )  # fmt: skip


def printed(paper: Paper, student: str) -> str:
    """Return a student's sheet as a part of the page that is printed: blanks to write into with a pencil."""
    return rendered("worksheet_one.html", paper, student, filled=False, foretold=[], printed=True)


def to_print(parts: Sequence[str]) -> str:
    """Return the page of all sheets of a class, each on pages of its own when it is printed."""
    style = styles(template_text("report.css"), template_text("worksheet.css"))
    return templates(autoescape=True).get_template("worksheets.html").render(
        parts=[Markup(part) for part in parts], style=Markup(style), policy=policy(style)
    )  # fmt: skip


def key(paper: Paper, student: str) -> str:
    """Return the key: the same boxes with what is right, and what each mistake would give."""
    style = styles(template_text("report.css"), template_text("worksheet.css"))
    mistakes = [mistake(paper, one) for one in foretold(paper)]
    return rendered(
        "worksheet.html",
        paper,
        student,
        filled=True,
        data=None,
        foretold=mistakes,
        printed=False,
        style=Markup(style),
        policy=policy(style),
    )


def rendered(template: str, paper: Paper, student: str, **more: Any) -> str:
    """Return a page of a sheet, or the part that says what is given and asked."""
    return templates(autoescape=True).get_template(template).render(
        student="" if student == "key" else student, digits=paper.digits, turned=paper.turned, given=given(paper),
        boxes=[box(paper, blank) for blank in paper.blanks], **more,
    )  # fmt: skip


def grades(
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    overview: Sequence[Sequence[str]],
    seal: str = "",
    boxes: Sequence[Sequence[str]] = (),
) -> str:
    """Return the page of a class: which mistake how often, the points by box, a line for each student, and the hash of
    its table."""
    style = styles(template_text("report.css"), template_text("worksheet.css"))
    most = max((int(count) for _, count, _ in overview), default=1)
    environment = templates(autoescape=True)
    environment.filters |= {"kinds": kinds}
    return environment.get_template("grades.html").render(
        heads=heads, lines=lines, overview=overview, boxes=boxes, seal=seal, most=most,
        style=Markup(style), policy=policy(style),
    )  # fmt: skip


def given(paper: Paper) -> list[dict[str, Any]]:
    """Return what a sheet starts from: x and the matrices, or those of q, k and v that it does not ask, or the weights.

    What a box needs and no box before it asks is given, so that every box can be filled in from the sheet alone.
    """
    problem = paper.sheet.problem
    asked = {blank.stage for blank in paper.blanks}
    arrays: list[tuple[str, Array | None, Sequence[str]]] = []
    if asked & {"q", "k", "v"}:
        arrays += sources(paper, asked)
    arrays += angles(paper, asked)
    arrays += sides(paper, asked)
    arrays += added(paper, asked)
    arrays.append(("weights", problem.weights, problem.tokens))
    for name in (*MATRICES, *BIASES):
        last = "output" in asked and paper.sheet.settled.output_projection
        projected = last if name[-1] == "o" else name[-1] in asked
        arrays.append((name, problem.projections.get(name) if projected else None, ()))
    return [matrix(name, np.atleast_2d(array), rows, paper) for name, array, rows in arrays if array is not None]


def sources(paper: Paper, asked: AbstractSet[str]) -> Iterator[tuple[str, Array, Sequence[str]]]:
    """Yield x, and the memory where keys and values are made of one, with their places marked as positions do."""
    problem, positions = paper.sheet.problem, [one for one in paper.sheet.settled.positions if one.changes_x]
    arrays = {"x": (problem.x, problem.tokens if problem.memory is not None else problem.key_tokens)}
    if problem.memory is not None:
        arrays = {"x": arrays["x"]} if "q" in asked else {}
        arrays |= {words.MEMORY: (problem.memory, problem.key_tokens)} if asked & {"k", "v"} else {}
    for name, (array, tokens) in arrays.items():
        if array is not None:
            marked = reduce(lambda given, position: position.embed(given), positions, array)
            yield f"{name} with positions" if positions else name, marked, tokens


def angles(paper: Paper, asked: AbstractSet[str]) -> Iterator[tuple[str, Array, Sequence[str]]]:
    """Yield the cosines and sines by which the asked of q and k are turned, a column for each pair.

    Queries that stand among the keys have their rows there; those of other tokens have tables of their own.
    """
    tokens = {"q": paper.sheet.problem.tokens, "k": paper.sheet.problem.key_tokens}
    turned = {side: paper.turned_sides[side] for side in "qk" if side in asked and side in paper.turned_sides}
    shared = len(turned) == 2 and tokens["q"] == tokens["k"][-len(tokens["q"]) :]
    shared = shared and np.allclose(turned["q"].cos, turned["k"].cos[-len(tokens["q"]) :])
    for side, one in turned.items():
        if not (shared and side == "q") and one.pairs:
            of = "" if shared or len(turned) == 1 else f" of {side}"
            yield f"cos{of}", one.cos, tokens[side]
            yield f"sin{of}", one.sin, tokens[side]


def added(paper: Paper, asked: AbstractSet[str]) -> Iterator[tuple[str, Array, Sequence[str]]]:
    """Yield what is added to the logits, a head at a time where heads differ, as far as a box needs it."""
    if paper.added is None or not asked & {"masked", "weights", "context", "output"}:
        return
    alike = all(np.array_equal(head, paper.added[0]) for head in paper.added)
    for head, array in enumerate(paper.added[:1] if alike else paper.added, 1):
        name = words.ADDED if alike else words.STAGE_OF_HEAD.format(stage=words.ADDED, number=head)
        yield name, array, paper.sheet.problem.tokens


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


def matrix(name: str, array: Array, rows: Sequence[str], paper: Paper) -> dict[str, Any]:
    """Return a matrix to look at, exact enough for the decimals of the sheet; tokens as columns where that is asked."""
    turned, digits = paper.turned, max(6, paper.digits + 4)
    shown = array.T if turned and rows else array
    signs = str.maketrans({"-": "−"})
    cells = [
        [f"{number:.{digits}g}".translate(signs).replace("inf", "∞") for number in line] for line in shown.tolist()
    ]
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


def mistake(paper: Paper, told: Foretold) -> dict[str, Any]:
    """Return what one mistake gives in the first box that it changes."""
    made = told.made.get(told.stage)
    array = None if made is None else made if made.ndim == 3 else made[None]
    blank = next(blank for blank in paper.blanks if blank.stage == told.stage)
    fits = array is not None and array.shape == blank.right.shape
    cells = [matrix_of(head, paper) for head in array] if fits and array is not None else []
    return {"name": told.name, "says": told.says, "stage": told.stage, "tables": cells}


def blank_data(paper: Paper, file: str) -> dict[str, Any]:
    """Return what a page needs that only saves what is typed."""
    return {"file": file, "digits": paper.digits, "turned": paper.turned, "exam": True, "hides": bool(crossed(paper))}


def data(paper: Paper, file: str) -> dict[str, Any]:
    """Return what the page checks with: every stage in full digits, and how each follows from the one before."""
    sheet = paper.sheet
    arrays = {name: nested(array if array.ndim == 3 else array[None]) for name, array in paper.exact.items()}
    projections = sheet.problem.projections if sheet.settled.output_projection else {}
    return {
        "file": file,
        "digits": paper.digits,
        "rooms": {stage: paper.room(stage) for stage in paper.turned_sides},
        "turned": paper.turned,
        "hides": bool(crossed(paper)),
        "order": [blank.stage for blank in paper.blanks],
        "scratch": list(sheet.scratch or ()),
        "exact": arrays,
        "added": None if paper.added is None else nested(paper.added),
        "cap": paper.cap,
        "extra": paper.extra,
        "normalizer": sheet.settled.rules.normalizer.name,
        "scale": sheet.settled.multiplier,
        "W_o": nested(projections["W_o"]) if "W_o" in projections else None,
        "b_o": nested(projections["b_o"]) if "b_o" in projections else None,
        "corners": {blank.stage: [list(blank.rows), list(blank.columns)] for blank in paper.blanks},
    }


def crossed(paper: Paper) -> dict[str, float]:
    """Return what a cross in a cell stands for, by box: a hidden place, where a mask hides some."""
    hides = paper.added is not None and bool(np.isneginf(paper.added).any())
    return {"masked": -math.inf, "weights": 0.0} if hides else {}


def nested(array: Array) -> Any:
    """Return an array as lists; None for minus infinity, which JSON has no word for."""
    if array.ndim == 1:
        return [float(number) if np.isfinite(number) else None for number in array]
    return [nested(part) for part in array]


HEADS_POOLED = {
    "first": "cut into heads of {width} columns, of which the first {heads.shared} are used",
    "mean": "cut into {heads.given} heads of {width} columns, then averaged in {heads.shared} groups of neighbors",
}
FORMULAS = {
    "q": words.FORMULA_SIDE,
    "k": words.FORMULA_SIDE,
    "v": words.FORMULA_SIDE,
    "scores": "scores = q kᵀ",
    "logits": "logits = scores × {scale}",
    "capped": "capped = {cap} tanh(logits / {cap})",
    "masked": "masked = {logits} + {added}{hidden}",
    "weights": "weights = exp({of}) / sum of exp({of}) over the row",
    "context": "context = weights v",
    "output": "output = context of all heads, side by side{projection}",
}
TURNED = {
    "q": words.TURNED_SIDE,
    "k": words.TURNED_SIDE,
    "v": words.TURNED_SIDE,
    "scores": "scores = kᵀ q: a column for each query",
    "weights": "weights = exp({of}) / sum of exp({of}) over the column",
    "context": "context = v weights",
    "output": "output = context of all heads, one below the other",
}
OTHER_WEIGHTS = {
    "sum": "weights = {of} / sum of {of} over the row",
    "sigmoid": "weights = 1 / (1 + exp(−{of})), each by itself",
}
CHAIN = ("output", "context", "weights", "masked", "capped", "logits", "scores")
"""Stages after q, k and v, each before the one that it is made of."""


def formula(paper: Paper, blank: Blank) -> str:
    """Return how a box is computed, and how each stage is that lies between it and the box before."""
    crossing = [words.WRITTEN_HIDDEN] if blank.stage == "masked" and crossed(paper) else []
    parts = [of_stage(paper, blank.stage), *crossing]
    asked = {other.stage for other in paper.blanks}
    for stage in CHAIN[CHAIN.index(blank.stage) + 1 :] if blank.stage in CHAIN else ():
        if stage in asked or stage not in paper.exact or (stage == "weights" and paper.given_weights):
            break
        parts += steps_between(paper, stage)
    return ", ".join(parts)


def steps_between(paper: Paper, stage: str) -> Iterator[str]:
    """Yield how a stage that no box asks is computed, where it is not the stage before it again."""
    if stage == "logits":
        plain = paper.sheet.settled.multiplier == 1
        yield "logit = score" if plain else f"logit = score × {scale_written(paper)}"
    elif not (
        (stage == "capped" and paper.cap is None)
        or (stage == "masked" and paper.added is None)
        or (stage == "context" and lone(paper))
    ):
        yield of_stage(paper, stage)


def of_stage(paper: Paper, stage: str) -> str:
    """Return how a stage is computed from the one before."""
    settled, projections = paper.sheet.settled, paper.sheet.problem.projections
    if stage == "output" and lone(paper):
        return "output = v weights" if paper.turned else "output = weights v"
    text = (TURNED if paper.turned else {}).get(stage, FORMULAS[stage])
    if stage == "output" and paper.turned and settled.output_projection:
        text = "output = W_oᵀ times the context of all heads, one below the other"
    if stage == "weights":
        extra = ", ".join(f"{number:.10g}" for number in dict.fromkeys(paper.extra))
        text = OTHER_WEIGHTS.get(settled.rules.normalizer.name, text)
        text += f", one more logit in the sum: {extra}" if extra else ""
    logits = "logits" if paper.cap is None else "capped"
    weighed = logits if paper.added is None else "masked"
    from_memory = stage in "kv" and paper.sheet.problem.memory is not None
    cap = "" if paper.cap is None else f"{paper.cap:.10g}"
    hidden = words.HIDDEN if crossed(paper) else ""
    told = text.format(
        side=stage, source=words.MEMORY if from_memory else "x", scale=scale_written(paper), cap=cap,
        logits=logits, of=weighed, added=words.ADDED, hidden=hidden,
        projection=", times W_o" if settled.output_projection else "",
    )  # fmt: skip
    bias = "b_o" if stage == "output" and settled.output_projection else f"b_{stage}" if stage in "qkv" else ""
    return told + (f" + {bias}" if bias in projections else "") + parting(paper, stage) + turning(paper, stage)


def turning(paper: Paper, stage: str) -> str:
    """Return which columns of each head positions turn, and how, where they do."""
    one = paper.turned_sides.get(stage)
    if one is None or not one.pairs:
        return ""
    lines = words.LINES_OF_TURNED if paper.turned else words.COLUMNS
    pairs = ", ".join(f"({left + 1}, {right + 1})" for left, right in one.pairs)
    several = f" {words.IN_EACH_HEAD}" if len(paper.exact[stage]) > 1 else ""
    text = words.PAIR_TURNED if len(one.pairs) == 1 else words.PAIRS_TURNED
    return ", " + text.format(lines=lines, pairs=pairs, several=several)


def parting(paper: Paper, stage: str) -> str:
    """Return how a side parts into heads where these are columns of it, and how many heads share one of the keys'."""
    shares = paper.sheet.settled.heads
    if stage in ("scores", "context") and shares.shared < shares.query:
        one, other = ("q", "k") if stage == "scores" else ("weights", "v")
        return ", " + words.HEADS_SHARE.format(count=shares.query // shares.shared, one=one, other=other)
    matrix = paper.sheet.problem.projections.get(f"W_{stage}")
    count, _, width = paper.exact[stage].shape if stage in "qkv" else (1, 0, 0)
    if stage in ("k", "v") and matrix is not None and shares.shared < shares.given:
        return ", " + HEADS_POOLED[shares.pool].format(width=width, heads=shares)
    parts = count > 1 and (matrix is None or matrix.shape[1] == count * width)
    return ", " + words.INTO_HEADS.format(width=width) if parts else ""


def lone(paper: Paper) -> bool:
    """Say whether the output is the context of one head."""
    return paper.sheet.settled.head == 1 and not paper.sheet.settled.output_projection


def scale_written(paper: Paper) -> str:
    """Write the scale exactly: in few digits where these say all, else beside them as a root or in many digits."""
    multiplier = paper.sheet.settled.multiplier
    few = f"{multiplier:.4g}"
    if float(few) == multiplier:
        return few
    number = round(multiplier**-2) if multiplier else 0
    if number and math.isclose(number**-0.5, multiplier):
        return f"{few} (1/√{number})"
    return f"{multiplier:.10g}"
