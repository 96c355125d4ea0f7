"""Two mistakes, one made after the other, that give the numbers of a worksheet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.diagnose import Candidate, composed
from attn_exp.diagnosis.suspects import Explanation, Made, best, case_of, distinct
from attn_exp.diagnosis.worksheet import Sheet, agrees, stages, wrong

MOST_PLACES = 20_000
"""Of matrices with more places than this, pairs of mistakes are not tried: there are thousands."""


def two_mistakes(sheet: Sheet, known: Sequence[Made]) -> Explanation | None:
    """Return two mistakes, one made after the other, that give the numbers."""
    if sheet.settled.head * len(sheet.problem.tokens) * sheet.problem.keys > MOST_PLACES:
        return None
    sheet = replace(sheet, scratch=None)  # of thousands of pairs one would fit within room for all that may be rounded
    case = case_of(sheet)
    fits = []
    for one, other in likely(sheet, distinct(sheet, known)):
        recipe = other.candidate.change(replace(case, recipe=one.recipe))
        if agrees(sheet, recipe):
            names = tuple(sorted((*one.candidate.names, *other.candidate.names)))
            fits.append(Candidate(names, composed(one.candidate, other.candidate)))
    return best(fits)


def likely(sheet: Sheet, known: Sequence[Made]) -> Iterator[tuple[Made, Made]]:
    """Yield pairs, in both orders, that may give the first wrong box.

    Neither changes a box before it; and both change this one, or the one that does gives its numbers.
    """
    exact = stages(sheet, sheet.right) or {}
    place = next((at for at in range(len(sheet.boxes)) if wrong(sheet, sheet.right, at, exact).any()), 0)
    before, here = (
        {box.stage: exact[box.stage] for box in part} for part in (sheet.boxes[:place], [sheet.boxes[place]])
    )
    telling = [made for made in known if leaves(made, before)]
    changing = {id(made) for made in telling if made.stages is None or not leaves(made, here)}
    giving = {
        id(made) for made in telling if id(made) in changing and not wrong(sheet, made.recipe, place, made.stages).any()
    }
    for one, other in itertools.permutations(telling, 2):
        pair = {id(one), id(other)}
        if one.candidate.names != other.candidate.names and (pair <= changing or pair & giving):
            yield one, other


def leaves(made: Made, right: Mapping[str, Array]) -> bool:
    """Say whether a mistake leaves stages as they are; one that does not fit the shapes alone may, beside another."""
    return made.stages is None or all(same(made.stages.get(name), array) for name, array in right.items())


def same(one: Array | None, other: Array) -> bool:
    """Say whether two stages are equal but for rounding."""
    return one is not None and one.shape == other.shape and np.allclose(one, other, rtol=1e-9, equal_nan=True)
