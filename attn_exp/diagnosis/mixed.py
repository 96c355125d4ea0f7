"""A mistake and a slip: numbers that one known mistake gives, but for a single cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from attn_exp.diagnosis.boxes import Box
from attn_exp.diagnosis.chance import by_chance
from attn_exp.diagnosis.slips import Slip, slips_of
from attn_exp.diagnosis.suspects import Explanation, Made, best, distinct
from attn_exp.diagnosis.worksheet import Sheet, part


def mistake_and_slip(sheet: Sheet, known: Sequence[Made]) -> tuple[Explanation, Slip] | None:
    """Return the mistake that gives every number but one, and that one; None where several cells are left, or the
    numbers that are left tell too little."""
    fits = [(made.candidate, slip) for made in distinct(sheet, known) if (slip := only_slip(sheet, made)) is not None]
    explanation = best([candidate for candidate, _ in fits])
    if explanation is None:
        return None
    slip = next(slip for candidate, slip in fits if candidate.names == explanation.names)
    cells = sum(int(box.given.sum()) for box in sheet.boxes)
    chance = by_chance(replace(sheet, boxes=tuple(without(sheet, slip))), known, len(known) * cells)
    return None if chance else (explanation, slip)


def only_slip(sheet: Sheet, made: Made) -> Slip | None:
    """Return the one wrong cell of a worksheet beside a mistake, where the rest is the mistake's or follows from it."""
    if made.stages is None or (not sheet.open and sheet.boxes[0].misses(part(made.stages, sheet.boxes[0])).sum() > 1):
        return None
    only: Slip | None = None
    for slip in slips_of(sheet, made.recipe, made.stages):
        if slip and (only or slip.cells.sum() > 1):
            return None
        only = only or slip
    return only


def without(sheet: Sheet, slip: Slip) -> Iterator[Box]:
    """Yield the boxes without the cell of a slip."""
    for box in sheet.boxes:
        yield replace(box, values=np.where(slip.cells, np.nan, box.values)) if box is slip.box else box
