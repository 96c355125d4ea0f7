"""Grade the numbers of a worksheet: which are right, follow from wrong ones, or are slips or named mistakes.

In: the worksheet and a student's numbers by stage. Out: a `Grade`: the state of each cell, the points, and remarks.
`judge` looks for one explanation of the whole sheet; without one, `by_hand.py` grades each box by itself. `sentence`
writes the summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.classroom.boxes import Box
from attn_exp.diagnosis.classroom.by_hand import (
    COARSE,
    CUT_TEXT,
    EXCHANGED,
    MISTAKE,
    SLIP,
    UNKNOWN,
    WRITTEN,
    Judge,
    Judged,
    Remark,
    coarser,
    own_halves,
    sharpened,
    slip_text,
    uncut,
)
from attn_exp.diagnosis.classroom.numbers import Numbers, equal_but_for_rounding
from attn_exp.diagnosis.classroom.paper import Paper
from attn_exp.diagnosis.classroom.worksheet import Sheet, agrees, part, transpose_sheet
from attn_exp.diagnosis.recipes.candidates import explained, what_a_setting_computes
from attn_exp.experiment.executing import STAGES

RIGHT, FOLLOWS, WRONG, EMPTY, UNREADABLE = "right", "follows", "wrong", "empty", "unreadable"
SETTING, LAYOUT, CANNOT_BE_READ, COPIED, MISSING = "setting", "layout", "cannot be read", "copied", "missing"
"""Kinds of remarks that are not about one box: another setting, a transposed table, and so on."""


@dataclass(frozen=True)
class Boxed:
    """A box, and how many of its cells are right, follow from earlier wrong cells, are wrong, empty or unreadable."""

    stage: str
    right: int
    follows: int
    wrong: int
    empty: int
    unreadable: int = 0


@dataclass(frozen=True)
class Grade:
    """The grade of one student's answers.

    `points` counts cells that are right or follow from wrong ones, `most` all cells. `first_wrong` is the first wrong
    stage; `mistakes` names the mistakes, or the setting, that give these numbers; `said` is the summary, and `remarks`
    are its parts. `cells` contains the state of each cell `[h r c]` by stage, and `expected` the right numbers of boxes
    with wrong cells.
    """

    boxes: tuple[Boxed, ...]
    points: int
    most: int
    first_wrong: str = ""
    mistakes: tuple[str, ...] = ()
    said: str = ""
    remarks: tuple[Remark, ...] = ()
    cells: Arrays = field(default_factory=dict, compare=False)
    expected: Arrays = field(default_factory=dict, compare=False)


def grade(
    paper: Paper,
    answers: Arrays,
    unreadable: Arrays | None = None,
    notes: Sequence[Remark] = (),
    decimals: Arrays | None = None,
) -> Grade:
    """Grade the numbers of some stages `[h r c]`, NaN where a cell is empty or `unreadable`.

    A number may differ by half a unit of the last required decimal from the right number, or from what follows from the
    rounded numbers in the boxes before it. `notes` are remarks on the file itself. `decimals` is the number of decimals
    with which each number is written, where known.
    """
    sheet = sheet_with(paper, tuple(box for box in boxes_of(paper, answers, decimals or {}) if box.given.any()))
    with np.errstate(all="ignore"):  # a student may write any number
        judged = judge(paper, sheet)
    cells = {
        blank.stage: cells_of(paper, sheet, judged, blank.stage, (unreadable or {}).get(blank.stage))
        for blank in paper.blanks
    }
    remarks = (*judged.remarks, *notes)
    empty = [stage for stage, states in cells.items() if (states == EMPTY).any()]
    if remarks and empty and any(np.isin(states, (RIGHT, FOLLOWS, WRONG)).any() for states in cells.values()):
        remarks = (*remarks, Remark("", MISSING, f"empty cells in {', '.join(empty)}"))
    return grade_cells(cells, remarks, judged.expected)


def grade_cells(cells: Arrays, remarks: tuple[Remark, ...], expected: Arrays) -> Grade:
    boxes = tuple(
        Boxed(stage, *(int((states == state).sum()) for state in (RIGHT, FOLLOWS, WRONG, EMPTY, UNREADABLE)))
        for stage, states in cells.items()
    )
    points = sum(box.right + box.follows for box in boxes)
    most = sum(states.size for states in cells.values())
    first = next((box.stage for box in boxes if box.wrong), "")
    names = tuple(dict.fromkeys(remark.name for remark in remarks if remark.name))
    return Grade(boxes, points, most, first, names, sentence(remarks), remarks, cells, expected)


@dataclass(frozen=True)
class Score:
    """The points of a box, and their maximum."""

    stage: str
    points: float
    most: float


def scores(grade: Grade, worth: Mapping[str, float]) -> tuple[Score, ...]:
    """Return the points of each box: one per correct cell, or a share of the box's points in `worth`."""
    found = []
    for box in grade.boxes:
        right = box.right + box.follows
        cells = sum((box.right, box.follows, box.wrong, box.empty, box.unreadable))
        most = worth.get(box.stage, float(cells))
        found.append(Score(box.stage, most * right / cells if cells else 0.0, most))
    return tuple(found)


def cells_of(paper: Paper, sheet: Sheet, judged: Judged, stage: str, unreadable: Array | None) -> Array:
    shape = next(blank.right.shape for blank in paper.blanks if blank.stage == stage)
    box = next((box for box in sheet.boxes if box.stage == stage), None)
    states = np.full(shape, EMPTY, dtype="<U10")
    if box is not None:
        given, wrong, follows = (
            array.reshape(shape) for array in (box.given, judged.wrong[stage], judged.follows[stage])
        )
        states = np.where(~given, EMPTY, np.where(wrong, WRONG, np.where(follows, FOLLOWS, RIGHT))).astype("<U10")
    return states if unreadable is None else np.where(unreadable, UNREADABLE, states)


def sheet_with(paper: Paper, boxes: tuple[Box, ...]) -> Sheet:
    """Return the sheet with a student's boxes; the numbers of empty boxes are assumed to be written elsewhere."""
    empty = {blank.stage for blank in paper.blanks} - {box.stage for box in boxes if box.given.any()}
    return replace(paper.sheet, boxes=boxes, scratch=(*(paper.sheet.scratch or ()), *sorted(empty)))


def boxes_of(paper: Paper, answers: Arrays, decimals: Arrays) -> Iterator[Box]:
    for blank in paper.blanks:
        if blank.stage in answers:
            values = answers[blank.stage].reshape(paper.exact[blank.stage].shape)
            own = 0.5 * 10.0 ** -decimals[blank.stage] if blank.stage in decimals else own_halves(values)
            halves = np.full(values.shape, paper.room(blank.stage))
            box = Box(blank.stage, values, halves, own.reshape(values.shape), (blank.rows, blank.columns))
            yield sharpened(box, paper.exact)


def noted(texts: Sequence[str]) -> tuple[Remark, ...]:
    return tuple(Remark("", CANNOT_BE_READ, text) for text in texts)


def not_their_own(grade: Grade, whose: str) -> Grade:
    cells = {stage: np.where(np.isin(states, (RIGHT, FOLLOWS)), WRONG, states) for stage, states in grade.cells.items()}
    return grade_cells(cells, (Remark("", COPIED, f"these are the numbers of {whose}'s sheet, not of this one"),), {})


# Explanations of a sheet


def judge(paper: Paper, sheet: Sheet) -> Judged:
    """Grade the cells of a sheet and explain them.

    Either the whole sheet is right, perhaps in another notation; or one mistake explains all of it; or each box is
    graded by itself. If that leaves a box unexplained, other settings, and a mistake with a slip, are tried on the
    whole sheet.
    """
    if not sheet.boxes or agrees(sheet, sheet.right):
        return grade_all_right(sheet)
    for remark, other in written_otherwise(sheet, paper.digits):
        if agrees(other, other.right):
            return grade_all_right(sheet, remark)
    coarse = coarser(sheet, paper.digits)
    base = sheet if coarse is None else coarse[1]
    notation = () if coarse is None else (Remark("", WRITTEN, coarse[0]),)
    plain_judge = Judge(base, paper.exact, paper.catalogue, paper.digits, plainly=True)
    found = Numbers(base, lambda: paper.catalogue, kind="sheet").one_mistake()
    if found is not None:
        return replace(plain_judge.judged(), remarks=(*notation, *describe_mistakes(paper, base, found.names)))
    by_boxes = Judge(base, paper.exact, paper.catalogue, paper.digits).judged()
    by_boxes = replace(by_boxes, remarks=(*notation, *by_boxes.remarks))
    if all(remark.kind != UNKNOWN for remark in by_boxes.remarks):
        return by_boxes
    remarks = explain_whole_sheet(paper, base)
    return replace(plain_judge.judged(), remarks=(*notation, *remarks)) if remarks else by_boxes


def grade_all_right(sheet: Sheet, *remarks: Remark) -> Judged:
    nothing = {box.stage: np.zeros_like(box.given) for box in sheet.boxes}
    return Judged(nothing, nothing, remarks)


def written_otherwise(sheet: Sheet, digits: int) -> Iterator[tuple[Remark, Sheet]]:
    coarse = coarser(sheet, digits)
    if coarse is not None:
        yield Remark("", WRITTEN, coarse[0]), coarse[1]
    yield Remark("", WRITTEN, CUT_TEXT), replace(sheet, boxes=tuple(map(uncut, sheet.boxes)))
    other = transpose_sheet(sheet)
    if other is not None:
        yield Remark("", LAYOUT, "right, with tokens in columns"), other


def describe_mistakes(paper: Paper, sheet: Sheet, names: Sequence[str]) -> list[Remark]:
    """Return a remark on each mistake, at the first box that it changes, in the order of the stages."""
    remarks = []
    for name in names:
        mistake = mistakes.mistake(name)
        stages = next((made.stages for made in paper.catalogue if made.candidate.names == (name,)), None)
        changed = (
            box.stage for box in sheet.boxes if not equal_but_for_rounding(part(stages, box), part(paper.exact, box))
        )
        remarks.append(Remark(next(changed, mistake.stage), MISTAKE, mistake.says, name, mistake.fix))
    return sorted(remarks, key=lambda remark: STAGES.index(remark.stage) if remark.stage in STAGES else len(STAGES))


def explain_whole_sheet(paper: Paper, sheet: Sheet) -> tuple[Remark, ...]:
    found = explained(Numbers(sheet, lambda: paper.catalogue, kind="sheet"))
    if found.names:
        remarks = list(describe_mistakes(paper, sheet, found.names))
        if found.slip is not None:
            slip = found.slip
            remarks.append(Remark(slip.box.stage, SLIP, slip_text(slip.box, slip.cells, slip.expected)))
        if found.view.sheet is not sheet:
            remarks.append(Remark("", LAYOUT, "tokens in columns"))
        return tuple(remarks)
    return (Remark("", SETTING, what_a_setting_computes(found.setting), found.setting),) if found.setting else ()


# In words


def sentence(remarks: Sequence[Remark]) -> str:
    """Return the summary: mistakes, slips, what is unexplained, then notation and what is missing."""
    copied = [remark.says for remark in remarks if remark.kind == COPIED]
    if copied:
        return copied[0]
    parts = list(dict.fromkeys(remark.says for remark in remarks if remark.kind in (MISTAKE, SETTING)))
    slips = exchanged_once([remark for remark in remarks if remark.kind in (SLIP, EXCHANGED)])
    if slips:
        parts.append(describe_slips(slips, besides=bool(parts)))
    unknown = [remark.stage for remark in remarks if remark.kind == UNKNOWN]
    if unknown:
        parts.append(f"no known mistake gives these numbers; {unknown[0]} is the first wrong stage")
    parts += describe_notations(remarks)
    unread = [remark.says for remark in remarks if remark.kind == CANNOT_BE_READ]
    parts += [f"cannot be read: {'; '.join(unread)}"] if unread else []
    parts += [remark.says for remark in remarks if remark.kind == MISSING]
    return join_sentences(parts)


def describe_slips(slips: Sequence[str], besides: bool) -> str:
    """Return a phrase, or a sentence if the slips are made `besides` a mistake."""
    noun = "slips" if len(slips) > 1 or "; " in slips[0] else "a slip"
    return (
        f"{noun.capitalize()} besides, with the mistake kept: {'; '.join(slips)}."
        if besides
        else f"{noun}: {'; '.join(slips)}"
    )


def describe_notations(remarks: Sequence[Remark]) -> list[str]:
    """Return remarks on notation, each with all stages that it applies to."""
    stages_by_text: dict[str, list[str]] = {}
    for remark in remarks:
        if remark.kind == COARSE:
            stages_by_text.setdefault(remark.says, []).append(remark.stage)
        elif remark.kind in (WRITTEN, LAYOUT):
            stage, _, text = remark.says.rpartition(": ") if remark.stage else ("", "", remark.says)
            stages_by_text.setdefault(text, []).extend([stage] if stage else [])
    return [f"{', '.join(stages)}: {text}" if stages else text for text, stages in stages_by_text.items()]


def exchanged_once(remarks: Sequence[Remark]) -> list[str]:
    """Leave out that k and q are swapped, because a remark says that q and k are."""
    reversed_pairs = [f"the boxes of {other} and {one} are swapped" for one, other in ("qk", "qv", "kv")]
    return [text for text in dict.fromkeys(remark.says for remark in remarks) if text not in reversed_pairs]


def join_sentences(parts: Sequence[str]) -> str:
    closed = [part if part.endswith(".") or place == len(parts) - 1 else f"{part}." for place, part in enumerate(parts)]
    return " ".join(f"{part[:1].upper()}{part[1:]}" if place else part for place, part in enumerate(closed))
