"""Judges the numbers of a worksheet: what is right, what follows from a wrong number, the slip, the mistake by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.boxes import Box
from attn_exp.diagnosis.candidates import what_a_setting_computes
from attn_exp.diagnosis.explanations import TWO, explained
from attn_exp.diagnosis.numbers import Numbers
from attn_exp.diagnosis.paper import Paper
from attn_exp.diagnosis.slips import every_slip
from attn_exp.diagnosis.worksheet import Sheet, unfollowed, wrong
from attn_exp.experiment.recipes import Stages

RIGHT, FOLLOWS, WRONG, EMPTY = "right", "follows", "wrong", "empty"


@dataclass(frozen=True)
class Boxed:
    """One box: how many of its cells are right, follow from wrong ones before, are wrong, or were left empty."""

    stage: str
    right: int
    follows: int
    wrong: int
    empty: int

    @property
    def state(self) -> str:
        """The box in a word."""
        if self.wrong:
            return WRONG
        if self.follows:
            return FOLLOWS
        return RIGHT if self.right else EMPTY


@dataclass(frozen=True)
class Grade:
    """What became of one student's answers.

    `points` are the cells that are right or follow rightly, `most` all cells. `first_wrong` is the first stage with a
    wrong cell; `mistakes` name what gives these numbers, or the setting that does, in the words of a run; `said` is the
    sentence for it, or for the slip.
    """

    boxes: tuple[Boxed, ...]
    points: int
    most: int
    first_wrong: str = ""
    mistakes: tuple[str, ...] = ()
    said: str = ""


def grade(paper: Paper, answers: Mapping[str, Array]) -> Grade:
    """Judge the numbers of some stages `[h r c]`, NaN where a cell is empty.

    A number may lie half a unit of the last decimal that was asked from what is right, or from what follows from the
    rounded numbers in the boxes before it.
    """
    sheet = sheet_with(paper, tuple(box for box in boxes_of(paper, answers) if box.given.any()))
    counted = {}
    for place, box in enumerate(sheet.boxes):
        cells = states_of_cells(sheet, place, paper.exact)
        counts = (int((cells == state).sum()) for state in (RIGHT, FOLLOWS, WRONG, EMPTY))
        counted[box.stage] = Boxed(box.stage, *counts)
    every = tuple(counted.get(blank.stage, Boxed(blank.stage, 0, 0, 0, blank.right.size)) for blank in paper.blanks)
    points = sum(box.right + box.follows for box in every)
    most = sum(blank.right.size for blank in paper.blanks)
    first = next((box.stage for box in every if box.wrong), "")
    if not first:
        return Grade(every, points, most)
    names, said = diagnosed(sheet, paper)
    return Grade(every, points, most, first, names, said)


def sheet_with(paper: Paper, boxes: tuple[Box, ...]) -> Sheet:
    """Return the sheet with a student's boxes; those left empty were written elsewhere, if at all."""
    empty = {blank.stage for blank in paper.blanks} - {box.stage for box in boxes if box.given.any()}
    return replace(paper.sheet, boxes=boxes, scratch=(*(paper.sheet.scratch or ()), *sorted(empty)))


def boxes_of(paper: Paper, answers: Mapping[str, Array]) -> Iterator[Box]:
    """Yield a student's numbers as boxes, each number exact to half a unit of the last decimal asked."""
    for blank in paper.blanks:
        if blank.stage in answers:
            values = answers[blank.stage].reshape(paper.exact[blank.stage].shape)
            halves = np.full(values.shape, 0.5 * 10.0**-paper.digits)
            yield Box(blank.stage, values, halves, halves, (blank.rows, blank.columns))


def states(paper: Paper, answers: Mapping[str, Array]) -> dict[str, Array]:
    """Return what each cell of the stages is `[h r c]`: right, following from a wrong one before, wrong, or empty."""
    sheet = sheet_with(paper, tuple(boxes_of(paper, answers)))
    return {
        box.stage: states_of_cells(sheet, place, paper.exact).reshape(answers[box.stage].shape)
        for place, box in enumerate(sheet.boxes)
    }


def states_of_cells(sheet: Sheet, place: int, exact: Stages) -> Array:
    """Return what each cell of a box is."""
    box = sheet.boxes[place]
    missed = box.misses(exact.get(box.stage))
    far = place or sheet.open
    followed = missed & ~unfollowed(sheet, sheet.right, place) if missed.any() and far else np.zeros_like(missed)
    before_wrong = any(wrong(sheet, sheet.right, earlier, exact).any() for earlier in range(place))
    follows = FOLLOWS if before_wrong else RIGHT
    return np.where(~box.given, EMPTY, np.where(followed, follows, np.where(missed, WRONG, RIGHT)))


def diagnosed(sheet: Sheet, paper: Paper) -> tuple[tuple[str, ...], str]:
    """Return the mistakes that give a sheet's numbers, or the setting that does, and a sentence; or the slip, or what
    is wrong first."""
    evidence = Numbers(sheet, lambda: paper.catalogue, kind="sheet")
    found = explained(evidence)
    if found.reading is not None:
        return (), "right, with tokens in columns"
    tried = len(paper.catalogue)
    if found.names and not (found.by == TWO and found.view.tell_too_little(tried**2)):
        besides = f" A slip besides: {found.slip}" if found.slip else ""
        besides += " (tokens in columns)" if found.view.sheet is not sheet else ""
        return found.names, " ".join(mistakes.mistake(name).says for name in found.names) + besides
    if found.setting:
        return (found.setting,), what_a_setting_computes(found.setting)
    bad = [slip for slip in found.slips or every_slip(sheet) if slip]
    if found.slips:
        return (), f"a slip: {bad[0]}"
    return (), f"no known mistake gives these numbers; {bad[0].box.stage} is the first that is wrong" if bad else ""
