"""The marked page of a student: the state of each number, the mistakes with their fixes, and the points."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.classroom.grading import EMPTY, FOLLOWS, UNREADABLE, WRONG, Grade, Score
from attn_exp.diagnosis.classroom.paper import Blank, Paper
from attn_exp.report import words
from attn_exp.report.templating import render_page, templates
from attn_exp.report.worksheet import STYLES, formula, written

MARKS = {WRONG: "✗", FOLLOWS: "→", UNREADABLE: "?", EMPTY: "–"}
"""Marks beside the numbers, so that a page without colours says the same."""

MEANING = {
    WRONG: "✗ wrong: next to it is what your earlier numbers give",
    FOLLOWS: "→ right, though computed from a wrong number",
    UNREADABLE: "? cannot be read",
    EMPTY: "– left empty: next to it is the right number",
}
"""The legend of the marks."""

HYPHEN = re.compile(r"(?<![\w.-])-(?=[\d.])")

LONG = 1e6
"""Numbers from here on are written in six digits."""


def page(title: str, parts: Sequence[str]) -> str:
    return render_page("marked.html", {"title": title, "parts": list(map(Markup, parts))}, STYLES)


def marked(paper: Paper, student: str, grade: Grade, numbers: Arrays, scored: Sequence[Score]) -> str:
    points = {score.stage: score for score in scored}
    boxes = [
        {
            "stage": blank.stage,
            "formula": formula(paper, blank),
            "points": count(points[blank.stage].points),
            "most": count(points[blank.stage].most),
            "tables": list(tables(paper, blank, grade, numbers.get(blank.stage))),
        }
        for blank in paper.blanks
    ]
    total = (count(sum(score.points for score in scored)), count(sum(score.most for score in scored)))
    said, marks = verdict(grade), legend_of_marks(grade)
    remedies = dict.fromkeys(remark.remedy for remark in grade.remarks if remark.remedy)
    return templates(autoescape=True).get_template("marked_one.html").render(
        student=student, boxes=boxes, points=total[0], most=total[1], remedies=list(remedies),
        said=HYPHEN.sub("−", said[:1].upper() + said[1:]), legend="; ".join(marks),
    )  # fmt: skip


def verdict(grade: Grade) -> str:
    if is_untouched(grade):
        return "nothing is filled in"
    return grade.said or (words.ALL_RIGHT if grade.points == grade.most else "no number is wrong; some are missing")


def is_untouched(grade: Grade) -> bool:
    return all(bool((states == EMPTY).all()) for states in grade.cells.values())


def legend_of_marks(grade: Grade) -> list[str]:
    known = {state: said for state, said in MEANING.items() if state != EMPTY or not is_untouched(grade)}
    return [told for state, told in known.items() if any((states == state).any() for states in grade.cells.values())]


def tables(paper: Paper, blank: Blank, grade: Grade, numbers: Array | None) -> Iterator[dict[str, Any]]:
    rows, columns = (blank.columns, blank.rows) if paper.transposed else (blank.rows, blank.columns)
    shape = blank.right.shape
    values = np.full(shape, np.nan) if numbers is None else numbers.reshape(shape)
    expected = grade.expected.get(blank.stage, paper.exact[blank.stage]).reshape(shape)
    blank_states = np.full(shape, "") if is_untouched(grade) else grade.cells[blank.stage]
    for head in range(shape[0]):
        parts = (values[head], expected[head], blank_states[head])
        mine, right, states = (part.T if paper.transposed else part for part in parts)
        lines = [
            [cell(paper, float(number), float(other), str(state)) for number, other, state in zip(*line, strict=True)]
            for line in zip(mine, right, states, strict=True)
        ]
        name = words.STAGE_OF_HEAD.format(stage=blank.stage, number=head + 1) if shape[0] > 1 else blank.stage
        yield {"name": name, "columns": columns, "lines": list(zip(rows, lines, strict=True))}


def cell(paper: Paper, number: float, right: float, state: str) -> dict[str, str]:
    shown = "" if np.isnan(number) else written(number, paper.digits)
    if shown and np.isfinite(number) and (abs(number) >= LONG or abs(number - round(number, paper.digits)) > 1e-9):
        shown = f"{number:.6g}"
    should = written(right, paper.digits) if state in (WRONG, UNREADABLE, EMPTY) else ""
    return {"shown": shown, "state": state, "mark": MARKS.get(state, ""), "should": should}


def count(points: float) -> str:
    """Format points: whole ones plainly, others to a tenth."""
    return f"{round(points, 1):g}"
