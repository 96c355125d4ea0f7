"""Evidence of a person: the numbers in the boxes of a worksheet, and which recipes give them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.recipes.candidates import (
    Candidate,
    Explained,
    best,
    composed,
    every_mistake,
    other_settings,
    rounding_mistakes,
)
from attn_exp.diagnosis.sheets.boxes import Box
from attn_exp.diagnosis.sheets.readings import Reading, by_own_digits, other_readings, turned
from attn_exp.diagnosis.sheets.slips import Slip, every_slip, is_slip, slips_of
from attn_exp.diagnosis.sheets.worksheet import Sheet, agrees, gives, part, stages, wrong
from attn_exp.experiment import memory
from attn_exp.experiment.mistaken import right
from attn_exp.experiment.recipes import Stages, follows_steps, given_to
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import Recipe

MOST_PLACES = 20_000
"""Of matrices with more places than this, pairs of mistakes are not tried: there are thousands."""
MATRICES = 800
"""Matrices `[h t s]` of the stages of all mistakes together."""
SPARE = 5.0
"""Bits that numbers must tell beyond those that the choice among explanations takes: 1 in 32 fits by chance."""


@dataclass(frozen=True, eq=False)
class Made:
    """A candidate, its recipe, and the stages that this gives: all of it follows from what is asked alone."""

    candidate: Candidate
    recipe: Recipe
    stages: Stages | None


def case_of(sheet: Sheet) -> Case:
    """Return the problem of a sheet as a question, which is what the catalogue knows."""
    return Case("numbers", sheet.right, given_to(sheet.settled, sheet.problem), explicit_scale=True)


def candidates_of(sheet: Sheet) -> list[Candidate]:
    """Return every way of every mistake that one set of numbers can show in this run."""
    return [one for one in every_mistake([case_of(sheet)]) if not mistakes.mistake(one.names[0]).of_code]


def catalogue(sheet: Sheet) -> list[Made]:
    """Return what every mistake would give on what a sheet asks, whatever stands in its boxes.

    Raises:
        UserError: all of that together would not fit in memory.
    """
    head, rows, keys = sheet.settled.head, len(sheet.problem.tokens), sheet.problem.keys
    needed = MATRICES * memory.NUMBER * head * rows * keys
    purpose = "to compute every known mistake"
    memory.refuse_too_large([memory.Need(needed, f"embeddings.tokens={rows}", purpose, "explain fewer tokens")])
    return made_of(sheet, candidates_of(sheet))


def made_of(sheet: Sheet, candidates: Sequence[Candidate]) -> list[Made]:
    """Return what some candidates would give on what a sheet asks."""
    case = case_of(sheet)
    made = [(candidate, candidate.change(case)) for candidate in candidates]
    return [Made(candidate, recipe, stages(sheet, recipe)) for candidate, recipe in made]


@dataclass(frozen=True, eq=False)
class Numbers:
    """The boxes of a sheet that is filled in.

    `kind` is `numbers`, which are explained whatever they are, or `sheet`: answers to a worksheet, which says how they
    are to be written. `known` returns what every mistake would give. `variants` are those of the run, by name.
    """

    sheet: Sheet
    known: Callable[[], Sequence[Made]]
    kind: str = "numbers"
    variants: Mapping[str, Settled] = field(default_factory=dict)
    is_whole = True

    def views(self, first: bool) -> Iterator[Numbers]:
        """Yield the ways to take the numbers: as they stand, with tokens in columns, or each by its own digits.

        Only the plainest explanations, the `first` ones, are tried on every way.
        """
        if self.kind == "sheet":
            sheets = self.layouts if first else self.layouts[:1]
        elif first:
            sheets = [way for layout in self.layouts for way in (layout, self.lenient[layout])]
            sheets = list(dict.fromkeys(sheets))
        else:
            sheets = list(self.lenient.values())
        yield from (replace(self, sheet=sheet) for sheet in sheets)

    @cached_property
    def layouts(self) -> list[Sheet]:
        """The sheet as it was filled in, and with rows and columns exchanged where its numbers fit so."""
        return [layout for layout in (self.sheet, turned(self.sheet)) if layout is not None]

    @cached_property
    def lenient(self) -> dict[Sheet, Sheet]:
        """Each layout with the sheet on which every number is as exact as its own digits."""
        return {layout: by_own_digits(layout) for layout in self.layouts}

    def as_asked(self) -> Explained | None:
        """Return that the numbers are right as asked, or None."""
        reading = Reading(self.sheet, self.sheet.right, "")
        return Explained(reading=reading) if agrees(reading.sheet, reading.recipe) else None

    def written_otherwise(self) -> Explained | None:
        """Return the way in which right numbers are computed or written down otherwise."""
        fits = (one for one in other_readings(self.sheet) if agrees(one.sheet, one.recipe))
        reading = next(fits, None)
        return None if reading is None else Explained(reading=reading)

    def single_that_fit(self) -> list[Candidate]:
        """Return the mistakes each of which alone gives the numbers."""
        return [made.candidate for made in self.known() if gives(self.sheet, made.recipe, made.stages)]

    def rounding(self) -> Explained | None:
        """Return the mistake that only rounds more than needed and gives the numbers."""
        made = made_of(self.sheet, list(rounding_mistakes()) if self.sheet.problem.weights is None else [])
        return best([one.candidate for one in made if gives(self.sheet, one.recipe, one.stages)])

    def setting_that_fits(self) -> Explained | None:
        """Return another variant of the run, or the first other setting, that gives the numbers, or nothing."""
        sheet, problem = self.sheet, self.sheet.problem
        for name, settled in self.variants.items():
            if name == sheet.settled.name or settled.mistakes or settled.refused:
                continue
            if follows_steps(settled, problem) and agrees(Sheet(settled, problem, sheet.boxes), right(settled)):
                return Explained(setting=f"variant=[{name}]")
        others: list[tuple[str, Recipe]] = []
        if problem.q is not None:
            usual = (problem.q.shape[-1] // sheet.settled.head) ** -0.5
            if sheet.settled.multiplier != usual:
                others.append(("scale=true", sheet.right.with_rules(scale=usual)))
        if problem.weights is None:
            others += [(word, change(sheet.right)) for word, change in other_settings(sheet.right)]
        word = next((word for word, recipe in others if agrees(sheet, recipe)), "")
        return Explained(setting=word) if word else None

    def likelier(self, found: Explained) -> Explained:
        """Return the explanation: nothing else is known of numbers."""
        return found

    def slipped(self) -> Explained | None:
        """Return the wrong cells of each box, where they are few and the rest follows from them."""
        slips = every_slip(self.sheet)
        return Explained(slips=tuple(slips)) if is_slip(slips) else None

    def mistake_and_slip(self) -> Explained | None:
        """Return the mistake that gives every number but one, and that one; None where several cells are left, or the
        numbers that are left tell too little."""
        known = self.known()
        fits = [(made.candidate, slip) for made in self.distinct() if (slip := only_slip(self.sheet, made)) is not None]
        found = best([candidate for candidate, _ in fits])
        if found is None:
            return None
        slip = next(slip for candidate, slip in fits if candidate.names == found.names)
        cells = sum(int(box.given.sum()) for box in self.sheet.boxes)
        without = replace(slip.box, values=np.where(slip.cells, np.nan, slip.box.values))
        boxes = tuple(without if box is slip.box else box for box in self.sheet.boxes)
        rest = replace(self, sheet=replace(self.sheet, boxes=boxes))
        return None if rest.tell_too_little(len(known) * cells) else replace(found, slip=slip)

    def pairs_that_fit(self) -> list[Candidate]:
        """Return two mistakes, one made after the other, that give the numbers."""
        settled, problem = self.sheet.settled, self.sheet.problem
        if settled.head * len(problem.tokens) * problem.keys > MOST_PLACES:
            return []
        exact = replace(self.sheet, scratch=None)  # of thousands one would fit within room for all that may be rounded
        case, fits = case_of(exact), []
        for one, other in likely_pairs(exact, self.distinct()):
            if agrees(exact, other.candidate.change(replace(case, recipe=one.recipe))):
                names = tuple(sorted((*one.candidate.names, *other.candidate.names)))
                fits.append(Candidate(names, composed(one.candidate, other.candidate)))
        return fits

    def distinct(self) -> list[Made]:
        """Return the candidates that change what the boxes ask, one of each name and of all that it gives there.

        Those that do not fit the shapes are kept: two of them may.
        """
        seen: set[tuple[str, str]] = set()
        kept = []
        right = self.text_of(stages(self.sheet, self.sheet.right))
        for made in self.known():
            key = (made.candidate.names[0], self.text_of(made.stages))
            if made.stages is None or (key not in seen and key[1] != right):
                kept.append(made)
            seen.add(key)
        return kept

    def text_of(self, made: Stages | None) -> str:
        """Return what stages give in the boxes, to nine decimals, as one text."""
        arrays = (part(made, box) for box in self.sheet.boxes)
        return " ".join(
            "-" if array is None else f"{array.shape}{(np.round(array, 9) + 0.0).tolist()}" for array in arrays
        )

    def tell_too_little(self, tried: int) -> bool:
        """Say whether the numbers tell too little to choose among so many explanations: one would fit by chance.

        A cell tells `log2(spread / rounding)` bits, its spread being that of the middle four fifths of what the
        candidates would write there. Boxes follow from one another, so the one that tells most counts.
        """
        amounts = (
            bits(box, [array for made in self.known() if (array := part(made.stages, box)) is not None])
            for box in self.sheet.boxes
        )
        return max(amounts, default=0.0) < math.log2(max(tried, 1)) + SPARE


def bits(box: Box, arrays: Sequence[Array]) -> float:
    """Return how much the given cells of a box tell, in bits."""
    fitting = [np.where(np.isfinite(array), array, 0.0) for array in arrays if array.shape == box.values.shape]
    if not fitting:
        return 0.0
    low, high = np.quantile(np.stack(fitting), [0.1, 0.9], axis=0)
    width = np.maximum(2 * box.halves, 1e-12)
    return float(np.log2(np.maximum((high - low) / width, 1.0)).sum(where=box.given))


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


def likely_pairs(sheet: Sheet, known: Sequence[Made]) -> Iterator[tuple[Made, Made]]:
    """Yield pairs, in both orders, that may give the first wrong box.

    Neither changes a box before it; and both change this one, or the one that does gives its numbers.
    """
    exact = stages(sheet, sheet.right) or {}
    place = next((at for at in range(len(sheet.boxes)) if wrong(sheet, sheet.right, at, exact).any()), 0)
    before = {box.stage: exact[box.stage] for box in sheet.boxes[:place]}
    here = {sheet.boxes[place].stage: exact[sheet.boxes[place].stage]}
    telling = [made for made in known if leaves(made, before)]
    changing = [made.stages is None or not leaves(made, here) for made in telling]
    giving = [
        changed and not wrong(sheet, made.recipe, place, made.stages).any()
        for made, changed in zip(telling, changing, strict=True)
    ]
    for one, other in itertools.permutations(range(len(telling)), 2):
        both, either = changing[one] and changing[other], giving[one] or giving[other]
        if (both or either) and telling[one].candidate.names != telling[other].candidate.names:
            yield telling[one], telling[other]


def leaves(made: Made, right: Mapping[str, Array]) -> bool:
    """Say whether a mistake leaves stages as they are; one that does not fit the shapes alone may, beside another."""
    return made.stages is None or all(equal_but_for_rounding(made.stages.get(name), right[name]) for name in right)


def equal_but_for_rounding(one: Array | None, other: Array | None) -> bool:
    """Say whether two arrays are the same numbers, to rounding; of none, both are to be none."""
    if one is None or other is None or one.shape != other.shape:
        return one is other
    return bool(np.allclose(one, other, rtol=1e-9, equal_nan=True))
