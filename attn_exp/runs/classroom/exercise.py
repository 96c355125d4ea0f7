"""A worksheet in Python: a notebook shows it with cells to type into, and arrays are graded like typed numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.classroom.grading import Grade, scores
from attn_exp.diagnosis.classroom.paper import Blank, Paper
from attn_exp.errors import UserError, unknown
from attn_exp.report import words, worksheet
from attn_exp.report.notebook import html
from attn_exp.report.terminal import table
from attn_exp.runs.classroom import answers, sheets

if TYPE_CHECKING:
    import pandas as pd

HEADS = ("stage", "right", "follows", "wrong", "empty")
FILE = "answers.csv"


@dataclass(frozen=True, eq=False)
class Exercise:
    """A worksheet. A notebook shows the given numbers, and cells that check numbers as they are typed in.

    `check` grades numbers computed in Python; `blank` returns a table of the right shape for them.
    """

    paper: Paper
    student: str = ""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages to fill in, in order."""
        return tuple(blank.stage for blank in self.paper.blanks)

    def blank(self, stage: str) -> pd.DataFrame:
        """Return an empty table for a stage with named rows and columns; several heads are stacked vertically.

        Raises:
            UserError: the stage is not on the sheet.
        """
        import pandas as pd  # noqa: PLC0415 - slow to import

        blank = self.asked(stage)
        rows, columns = (blank.columns, blank.rows) if self.paper.transposed else (blank.rows, blank.columns)
        heads = len(blank.right)
        names = pd.MultiIndex.from_product([range(1, heads + 1), rows], names=["head", None]) if heads > 1 else rows
        return pd.DataFrame(np.full((heads * len(rows), len(columns)), np.nan), index=names, columns=list(columns))

    def check(self, given: str | Path | Mapping[str, Any] | None = None, **numbers: Any) -> Checked:
        """Check numbers: those of stages, `check(scores=s, weights=w)`, or a file saved by the page.

        A stage is `[r c]`, or `[h r c]`, or has its heads stacked vertically, as in `blank`; NaN counts as empty.

        Raises:
            UserError: a stage that is not on the sheet, numbers of another shape, or a file that cannot be read.
        """
        if isinstance(given, str | Path):
            read = answers.read_filled(Path(given), self.paper)
        elif given is None or isinstance(given, Mapping):
            each = {**(given or {}), **numbers}
            read = answers.Filled({stage: self.shaped(str(stage), values) for stage, values in each.items()}, {})
        else:
            raise UserError(f"check: expected the name of a file, or numbers by stage, such as {self.stages[0]}=[...]")
        return Checked(self.paper, self.student, read.numbers, read.grade(self.paper))

    def shaped(self, stage: str, values: Any) -> Array:
        """Return the numbers of a stage as `[h r c]`."""
        right = self.asked(stage).right
        heads, rows, columns = right.shape
        shown = (columns, rows) if self.paper.transposed else (rows, columns)
        try:
            array = np.asarray(values, float)
        except (TypeError, ValueError) as error:
            raise UserError(f"{stage}: expected numbers, {shown[0]} rows of {shown[1]}") from error
        if array.shape not in ((heads, *shown), (heads * shown[0], shown[1])):
            raise UserError(
                f"{stage}: expected {shown[0]} rows of {shown[1]} numbers"
                f"{f' for each of {heads} heads' * (heads > 1)}; got shape {array.shape}"
            )
        array = array.reshape(heads, *shown)
        return array.swapaxes(1, 2) if self.paper.transposed else array

    def asked(self, stage: str) -> Blank:
        blank = next((blank for blank in self.paper.blanks if blank.stage == stage), None)
        if blank is None:
            raise UserError(unknown(stage, self.stages, "stage of this sheet"))
        return blank

    def __repr__(self) -> str:
        parts = []
        for matrix in worksheet.given(self.paper):
            rows = matrix["rows"] or [""] * len(matrix["cells"])
            heads = [matrix["name"], *(matrix["columns"] or [""] * len(matrix["cells"][0]))]
            parts.append(table(heads, [[row, *cells] for row, cells in zip(rows, matrix["cells"], strict=True)]))
        wanted = f"to fill in: {', '.join(self.stages)}, to {self.paper.digits} decimals"
        return "\n\n".join([*parts, wanted])

    def _repr_html_(self) -> str:
        return html("framed", worksheet.page(self.paper, self.student, FILE), "worksheet", height_of(self.paper))


@dataclass(frozen=True, eq=False)
class Checked:
    """The result of a check: which numbers are right, the first wrong stage, and the mistake or the slip."""

    paper: Paper
    student: str
    numbers: Arrays
    grade: Grade

    @property
    def passed(self) -> bool:
        """Whether every given number is right."""
        return not self.grade.first_wrong and not any(box.follows for box in self.grade.boxes)

    @property
    def mistakes(self) -> tuple[str, ...]:
        return self.grade.mistakes

    @property
    def said(self) -> str:
        """The sentence on the mistake or the slip, or that all is right."""
        return worksheet.verdict(self.grade)

    def __repr__(self) -> str:
        lines = [[box.stage, *map(str, (box.right, box.follows, box.wrong, box.empty))] for box in self.grade.boxes]
        return f"{table(HEADS, lines)}\n\n{self.verdict}"

    @property
    def verdict(self) -> str:
        """The name of the mistake, if there is one, and the sentence."""
        return f"{f' {words.AND} '.join(self.mistakes)}: {self.said}" if self.mistakes else self.said

    def _repr_html_(self) -> str:
        marked = worksheet.marked(self.paper, self.student, self.grade, self.numbers, scores(self.grade, {}))
        return html(
            "framed", worksheet.marked_page(words.MARKED_SHEETS, [marked]), "marked worksheet", height_of(self.paper)
        )


def height_of(paper: Paper) -> int:
    """Return the height of a worksheet in a notebook, in pixels."""
    return 360 + 40 * sum(len(blank.right) * (len(blank.rows) + 4) for blank in paper.blanks)


def exercise(asked_words: Sequence[str]) -> Exercise:
    """Return the worksheet that the words of `attn-exp sheet` describe, without writing files.

    Raises:
        UserError: the settings are invalid, or make no sheet or several.
    """
    for name in ("names", "to"):
        if any(word.startswith(f"{name}=") for word in asked_words):
            raise UserError(f"{name}=: writes files; `attn-exp sheet` does that")
    options, settings = sheets.read_options(asked_words)
    if (count := len(sheets.students_of(options))) > 1:
        raise UserError(f"{count} seeds make as many sheets; name one, such as seed=0")
    _, key, paper = next(sheets.every_sheet(options, settings))
    return Exercise(paper, key.student)
