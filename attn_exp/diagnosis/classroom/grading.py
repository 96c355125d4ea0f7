"""Grade the numbers of a worksheet: which are right, follow from wrong ones, or are slips or named mistakes.

In: the worksheet and a student's numbers by stage. Out: a `Grade`: the state of each cell, the points, and remarks.
`judge` looks for one explanation of the whole sheet; without one, `by_hand.py` grades each box by itself. `summarize`
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
    CUT_TEXT,
    EXCHANGED,
    MISTAKE,
    SLIP,
    UNKNOWN,
    WRITTEN,
    Judge,
    Judged,
    Remark,
    find_coarser,
    find_own_tolerances,
    format_slip,
    mark_exact,
    undo_truncation,
)
from attn_exp.diagnosis.classroom.numbers import Numbers, equal_but_for_rounding
from attn_exp.diagnosis.classroom.paper import Blank, Paper
from attn_exp.diagnosis.classroom.worksheet import Sheet, agrees, get_stage, transpose_sheet
from attn_exp.diagnosis.recipes.candidates import find_explanation, what_a_setting_computes
from attn_exp.experiment.executing import STAGES

RIGHT, FOLLOWS, WRONG, EMPTY, UNREADABLE = "right", "follows", "wrong", "empty", "unreadable"
SETTING, LAYOUT, CANNOT_BE_READ, COPIED, MISSING = "setting", "layout", "cannot be read", "copied", "missing"
"""Kinds of remarks that are not about one box: another setting, a transposed table, and so on."""


@dataclass(frozen=True)
class BoxGrade:
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

    - `points`: the number of cells that are right or follow from wrong ones. `most`: the number of all cells.
    - `first_wrong`: the first stage with wrong cells.
    - `mistakes`: the names of the mistakes, or of the setting, that give these numbers.
    - `summary`: the texts of the `remarks`, joined.
    - `cells`: the state of each cell `[h r c]`, by stage.
    - `expected`: for boxes with wrong cells, what follows from the boxes before them as written.
    """

    boxes: tuple[BoxGrade, ...]
    points: int
    most: int
    first_wrong: str = ""
    mistakes: tuple[str, ...] = ()
    summary: str = ""
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
    rounded numbers in the boxes before it.

    Args:
        paper: the worksheet.
        answers: the numbers by stage.
        unreadable: masks of the cells that cannot be read, by stage.
        notes: remarks on the file itself.
        decimals: with how many decimals each number is written, by stage; stages may be missing.
    """
    sheet = fill_sheet(paper, tuple(box for box in make_boxes(paper, answers, decimals or {}) if box.given.any()))
    with np.errstate(all="ignore"):  # a student may write any number
        judged = judge(paper, sheet)
    cells = {
        blank.stage: find_cell_states(blank, sheet, judged, (unreadable or {}).get(blank.stage))
        for blank in paper.blanks
    }
    remarks = (*judged.remarks, *notes)
    empty = [stage for stage, states in cells.items() if (states == EMPTY).any()]
    if remarks and empty and any(np.isin(states, (RIGHT, FOLLOWS, WRONG)).any() for states in cells.values()):
        remarks = (*remarks, Remark("", MISSING, f"empty cells in {', '.join(empty)}"))
    return grade_cells(cells, remarks, judged.expected)


def grade_cells(cells: Arrays, remarks: tuple[Remark, ...], expected: Arrays) -> Grade:
    boxes = tuple(
        BoxGrade(stage, *(int((states == state).sum()) for state in (RIGHT, FOLLOWS, WRONG, EMPTY, UNREADABLE)))
        for stage, states in cells.items()
    )
    points = sum(box.right + box.follows for box in boxes)
    max_points = sum(states.size for states in cells.values())
    first_wrong = next((box.stage for box in boxes if box.wrong), "")
    mistake_names = tuple(dict.fromkeys(remark.name for remark in remarks if remark.name))
    return Grade(boxes, points, max_points, first_wrong, mistake_names, summarize(remarks), remarks, cells, expected)


@dataclass(frozen=True)
class Score:
    """The points of a box, and their maximum."""

    stage: str
    points: float
    most: float


def score_boxes(grade: Grade, points_by_stage: Mapping[str, float]) -> tuple[Score, ...]:
    """Return the points of each box: one per correct cell, or a share of the box's points in `points_by_stage`."""
    scores = []
    for box in grade.boxes:
        points = box.right + box.follows
        cell_count = sum((box.right, box.follows, box.wrong, box.empty, box.unreadable))
        max_points = points_by_stage.get(box.stage, float(cell_count))
        scores.append(Score(box.stage, max_points * points / cell_count if cell_count else 0.0, max_points))
    return tuple(scores)


def find_cell_states(blank: Blank, sheet: Sheet, judged: Judged, unreadable: Array | None) -> Array:
    """Return the state of each cell of a box `[h r c]`: "right", "follows", "wrong" and so on."""
    box = next((box for box in sheet.boxes if box.stage == blank.stage), None)
    states = np.full(blank.right.shape, EMPTY, dtype="<U10")
    if box is not None:
        arrays = (box.given, judged.wrong[box.stage], judged.follows[box.stage])
        given, wrong, follows = (array.reshape(states.shape) for array in arrays)
        states = np.where(~given, EMPTY, np.where(wrong, WRONG, np.where(follows, FOLLOWS, RIGHT))).astype("<U10")
    return states if unreadable is None else np.where(unreadable, UNREADABLE, states)


def fill_sheet(paper: Paper, boxes: tuple[Box, ...]) -> Sheet:
    """Return the sheet with a student's boxes; the student is assumed to have the numbers of empty boxes elsewhere."""
    empty = {blank.stage for blank in paper.blanks} - {box.stage for box in boxes if box.given.any()}
    return replace(paper.sheet, boxes=boxes, scratch=(*(paper.sheet.scratch or ()), *sorted(empty)))


def make_boxes(paper: Paper, answers: Arrays, decimals: Arrays) -> Iterator[Box]:
    for blank in paper.blanks:
        if blank.stage in answers:
            values = answers[blank.stage].reshape(paper.exact[blank.stage].shape)
            digits = decimals.get(blank.stage)
            own_tolerances = (
                find_own_tolerances(values) if digits is None else (0.5 * 10.0**-digits).reshape(values.shape)
            )
            tolerances = np.full(values.shape, paper.find_tolerance(blank.stage))
            box = Box(blank.stage, values, tolerances, own_tolerances, (blank.rows, blank.columns))
            yield mark_exact(box, paper.exact)


def make_unreadable_remarks(texts: Sequence[str]) -> tuple[Remark, ...]:
    return tuple(Remark("", CANNOT_BE_READ, text) for text in texts)


def reject_copied(grade: Grade, whose: str) -> Grade:
    cells = {stage: np.where(np.isin(states, (RIGHT, FOLLOWS)), WRONG, states) for stage, states in grade.cells.items()}
    return grade_cells(cells, (Remark("", COPIED, f"these are the numbers of {whose}'s sheet, not of this one"),), {})


# Explanations of a sheet


def judge(paper: Paper, sheet: Sheet) -> Judged:
    """Grade the cells of a sheet and explain them.

    The first of these that fits explains the cells:

    1. The whole sheet is right, perhaps in another notation.
    2. One mistake explains the whole sheet.
    3. Each box is explained by itself, and no box remains unexplained.
    4. Another setting, or a mistake together with a slip, explains the whole sheet.

    If none fits, each box is graded by itself, and the unexplained ones get a remark that says so.
    """
    if not sheet.boxes or agrees(sheet, sheet.right):
        return grade_all_right(sheet)
    for remark, other_sheet in list_notations(sheet, paper.digits):
        if agrees(other_sheet, other_sheet.right):
            return grade_all_right(sheet, remark)
    # a sheet with too few decimals is graded at that precision; a remark says so
    remark_text, sheet_to_grade = find_coarser(sheet, paper.digits) or ("", sheet)
    notation = (Remark("", WRITTEN, remark_text),) if remark_text else ()
    plain_judge = Judge(sheet_to_grade, paper.exact, paper.catalogue, paper.digits, without_remarks=True)
    found = Numbers(sheet_to_grade, lambda: paper.catalogue, kind="sheet").explain_by_mistake()
    if found is not None:
        return replace(plain_judge.grade(), remarks=(*notation, *describe_mistakes(paper, sheet_to_grade, found.names)))
    boxwise = Judge(sheet_to_grade, paper.exact, paper.catalogue, paper.digits).grade()
    boxwise = replace(boxwise, remarks=(*notation, *boxwise.remarks))
    if all(remark.kind != UNKNOWN for remark in boxwise.remarks):
        return boxwise
    remarks = explain_whole_sheet(paper, sheet_to_grade)
    return replace(plain_judge.grade(), remarks=(*notation, *remarks)) if remarks else boxwise


def grade_all_right(sheet: Sheet, *remarks: Remark) -> Judged:
    nothing = {box.stage: np.zeros_like(box.given) for box in sheet.boxes}
    return Judged(nothing, nothing, remarks)


def list_notations(sheet: Sheet, digits: int) -> Iterator[tuple[Remark, Sheet]]:
    """Yield the sheet with its numbers read in other ways, and the remark to make if the numbers are right that way."""
    coarse = find_coarser(sheet, digits)
    if coarse is not None:
        yield Remark("", WRITTEN, coarse[0]), coarse[1]
    yield Remark("", WRITTEN, CUT_TEXT), replace(sheet, boxes=tuple(map(undo_truncation, sheet.boxes)))
    transposed = transpose_sheet(sheet)
    if transposed is not None:
        yield Remark("", LAYOUT, "right, with tokens in columns"), transposed


def describe_mistakes(paper: Paper, sheet: Sheet, names: Sequence[str]) -> list[Remark]:
    """Return a remark on each mistake, at the first box that it changes, in the order of the stages."""
    remarks = []
    for name in names:
        mistake = mistakes.mistake(name)
        predicted = next((one.stages for one in paper.catalogue if one.candidate.names == (name,)), None)
        changed = (
            box.stage
            for box in sheet.boxes
            if not equal_but_for_rounding(get_stage(predicted, box), get_stage(paper.exact, box))
        )
        remarks.append(Remark(next(changed, mistake.stage), MISTAKE, mistake.says, name, mistake.fix))
    return sorted(remarks, key=lambda remark: STAGES.index(remark.stage) if remark.stage in STAGES else len(STAGES))


def explain_whole_sheet(paper: Paper, sheet: Sheet) -> tuple[Remark, ...]:
    """Return remarks on the mistakes or the setting that give all numbers of the sheet; none if nothing does."""
    found = find_explanation(Numbers(sheet, lambda: paper.catalogue, kind="sheet"))
    if found.names:
        remarks = describe_mistakes(paper, sheet, found.names)
        if (slip := found.slip) is not None:
            remarks.append(Remark(slip.box.stage, SLIP, format_slip(slip.box, slip.cells, slip.expected)))
        if found.view.sheet is not sheet:
            remarks.append(Remark("", LAYOUT, "tokens in columns"))
        return tuple(remarks)
    return (Remark("", SETTING, what_a_setting_computes(found.setting), found.setting),) if found.setting else ()


# In words


def summarize(remarks: Sequence[Remark]) -> str:
    """Return the summary: mistakes, slips, what is unexplained, then notation and what is missing."""
    copied = [remark.says for remark in remarks if remark.kind == COPIED]
    if copied:
        return copied[0]
    parts = list(dict.fromkeys(remark.says for remark in remarks if remark.kind in (MISTAKE, SETTING)))
    slip_texts = drop_reversed_swaps([remark for remark in remarks if remark.kind in (SLIP, EXCHANGED)])
    if slip_texts:
        parts.append(describe_slips(slip_texts, has_mistake=bool(parts)))
    unexplained = [remark.stage for remark in remarks if remark.kind == UNKNOWN]
    if unexplained:
        parts.append(f"no known mistake gives these numbers; {unexplained[0]} is the first wrong stage")
    parts += describe_notations(remarks)
    unreadable = [remark.says for remark in remarks if remark.kind == CANNOT_BE_READ]
    parts += [f"cannot be read: {'; '.join(unreadable)}"] if unreadable else []
    parts += [remark.says for remark in remarks if remark.kind == MISSING]
    return join_sentences(parts)


def describe_slips(slip_texts: Sequence[str], has_mistake: bool) -> str:
    """Return a phrase, or a sentence if a mistake is described before it.

    One text may list several cells, separated by "; ". If there is a mistake, the expected numbers in the texts follow
    from it.
    """
    text = "; ".join(slip_texts)
    noun = "slips" if "; " in text else "a slip"
    return f"Apart from this mistake, the sheet has {noun}: {text}." if has_mistake else f"{noun}: {text}"


def describe_notations(remarks: Sequence[Remark]) -> list[str]:
    """Return remarks on notation, each with all stages that it applies to."""
    stages_by_text: dict[str, list[str]] = {}
    for remark in remarks:
        if remark.kind in (WRITTEN, LAYOUT):
            stage, _, text = remark.says.rpartition(": ") if remark.stage else ("", "", remark.says)
            stages_by_text.setdefault(text, []).extend([stage] if stage else [])
    return [f"{', '.join(stages)}: {text}" if stages else text for text, stages in stages_by_text.items()]


def drop_reversed_swaps(remarks: Sequence[Remark]) -> list[str]:
    """Return the texts without repetitions: "k and q are swapped" repeats "q and k are swapped"."""
    reversed_pairs = [f"the boxes of {other} and {one} are swapped" for one, other in ("qk", "qv", "kv")]
    return [text for text in dict.fromkeys(remark.says for remark in remarks) if text not in reversed_pairs]


def join_sentences(parts: Sequence[str]) -> str:
    """Join phrases and sentences: all but the first get a capital letter, and all but the last get a period."""
    sentences = [part if part.endswith(".") else f"{part}." for part in parts[:-1]] + [*parts[-1:]]
    return " ".join(f"{part[:1].upper()}{part[1:]}" if index else part for index, part in enumerate(sentences))
