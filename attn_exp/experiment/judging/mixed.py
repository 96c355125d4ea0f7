"""A mistake and a slip: numbers that one known mistake gives, but for a single cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from attn_exp.experiment.judging.boxes import Box
from attn_exp.experiment.judging.chance import by_chance
from attn_exp.experiment.judging.diagnose import Candidate
from attn_exp.experiment.judging.slips import Slip, every_slip
from attn_exp.experiment.judging.suspects import Explanation, best, case_of, distinct
from attn_exp.experiment.judging.worksheet import Sheet, part, stages


def mistake_and_slip(sheet: Sheet, candidates: Sequence[Candidate]) -> tuple[Explanation, Slip] | None:
    """Return the mistake that gives every number but one, and that one; None where several cells are left, or the
    numbers that are left tell too little."""
    case = case_of(sheet)
    fits: list[Candidate] = []
    slips: dict[int, Slip] = {}
    for candidate in distinct(sheet, candidates, case):
        slip = only_slip(replace(sheet, recipe=candidate.change(case)))
        if slip is not None:
            fits.append(candidate)
            slips[id(candidate.change)] = slip
    explanation = best(fits, case)
    if explanation is None:
        return None
    first = next(candidate for candidate in fits if candidate.names == explanation.names)
    slip = slips[id(first.change)]
    cells = sum(int(box.given.sum()) for box in sheet.boxes)
    known = by_chance(replace(sheet, boxes=tuple(without(sheet, slip))), candidates, len(candidates) * cells)
    return None if known else (explanation, slip)


def only_slip(sheet: Sheet) -> Slip | None:
    """Return the one wrong cell of a worksheet, where the rest is right or follows from it."""
    made = stages(sheet, sheet.right)
    if made is None or sheet.boxes[0].misses(part(made, sheet.boxes[0])).sum() > 1:
        return None
    slips = [slip for slip in every_slip(sheet) if slip]
    return slips[0] if len(slips) == 1 and slips[0].cells.sum() == 1 else None


def without(sheet: Sheet, slip: Slip) -> Iterator[Box]:
    """Yield the boxes without the cell of a slip."""
    for box in sheet.boxes:
        yield replace(box, values=np.where(slip.cells, np.nan, box.values)) if box is slip.box else box
