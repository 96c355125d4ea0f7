"""Wrong cells of a worksheet: which they are, the expected numbers, and whether the rest follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.sheets.boxes import Box
from attn_exp.diagnosis.sheets.worksheet import Sheet, going_on_from, part, stages, unfollowed, wrong
from attn_exp.experiment.recipes import Stages
from attn_exp.experiment.verdict import BROKEN, HELD, Finding
from attn_exp.forms.pipeline import Recipe

SHOWN = 4
"""Maximum number of wrong cells that are listed."""
FEW = 1 / 3
"""A slip affects at most this share of a box; more is another computation."""


@dataclass(frozen=True, eq=False)
class Slip:
    """Wrong cells in one box, and the expected numbers."""

    box: Box
    cells: Array
    expected: Array | None

    def __str__(self) -> str:
        places = np.argwhere(self.cells).tolist()
        shown = "; ".join(self.cell(place) for place in places[:SHOWN])
        return f"{shown}; {len(places)} in all" if len(places) > SHOWN else shown

    def cell(self, place: Sequence[int]) -> str:
        """Describe a wrong cell and its expected number."""
        mine = self.box.write_like(place, float(self.box.values[tuple(place)]))
        if self.expected is None or self.expected.shape != self.box.values.shape:
            return f"{self.box.where(place)}: {mine} is wrong"
        return f"{self.box.where(place)}: {mine} should be {self.box.write_like(place, self.expected[tuple(place)])}"


def every_slip(sheet: Sheet) -> list[Slip | None]:
    """Return the wrong cells of each box, given the boxes before it, or None where it is right."""
    return list(slips_of(sheet, sheet.right, stages(sheet, sheet.right)))


def slips_of(sheet: Sheet, recipe: Recipe, exact: Stages | None) -> Iterator[Slip | None]:
    """Yield the same relative to a recipe with known stages."""
    later = False
    for place, box in enumerate(sheet.boxes):
        missed = unfollowed(sheet, recipe, place) if later else wrong(sheet, recipe, place, exact)
        if not missed.any():
            yield None
            continue
        made = stages(sheet, going_on_from(recipe, sheet.boxes[:place])) if later else exact
        later = True
        yield Slip(box, missed, part(made, box))


def is_slip(slips: Sequence[Slip | None]) -> bool:
    """Return whether few cells of each box are wrong, so that the rest is more than chance."""
    shares = [float(slip.cells.sum() / slip.box.given.sum()) for slip in slips if slip]
    return bool(shares) and max(shares) <= FEW


def after_slips(sheet: Sheet, slips: Sequence[Slip | None]) -> Iterator[Finding]:
    """Yield a finding on each box if no mistake explains the wrong ones."""
    wrong_already = False
    for box, slip in zip(sheet.boxes, slips, strict=True):
        good = "follows from the numbers before" if wrong_already else box.counted
        yield Finding(box.stage, BROKEN, str(slip)) if slip else Finding(box.stage, HELD, good)
        wrong_already = wrong_already or slip is not None


def consequences(sheet: Sheet) -> Iterator[Finding]:
    """Yield a finding on each box if a mistake explains all: the first wrong one, and what follows from it."""
    exact = stages(sheet, sheet.right)
    wrong_already = False
    for place, box in enumerate(sheet.boxes):
        missed = box.misses(part(exact, box)) if wrong_already else wrong(sheet, sheet.right, place, exact)
        if not missed.any():
            yield Finding(box.stage, HELD, box.counted)
        elif wrong_already and not unfollowed(sheet, sheet.right, place).any():
            yield Finding(box.stage, HELD, "follows from the numbers before")
        else:
            yield Finding(box.stage, BROKEN, str(Slip(box, missed, part(exact, box))))
        wrong_already = wrong_already or bool(missed.any())


def sums(sheet: Sheet) -> Iterator[Finding]:
    """Yield whether rows of weights sum to 1, where whole rows are given."""
    weights = next((box for box in sheet.boxes if box.stage == "weights"), None)
    if weights is None or not weights.given.all(axis=-1).any() or not sheet.settled.rules.normalizer.exponential:
        return
    total = weights.values.sum(axis=-1)
    whole = weights.given.all(axis=-1) & weights.values.any(axis=-1)
    bad = whole & (np.abs(np.where(whole, total, 1.0) - 1) > weights.halves.sum(axis=-1) + 1e-9)
    said = f"{int(bad.sum())} of {int(whole.sum())} do not; one sums to {total[bad][0]:.4g}" if bad.any() else ""
    yield Finding("rows of weights sum to 1", BROKEN if bad.any() else HELD, said)
