"""Grade a worksheet as a teacher does: one box after another, each from the numbers in the boxes before it.

A number is right, or follows from the earlier boxes, as written or corrected. Any other number is explained by the
first of these that fits: right numbers written differently (coarser, truncated, in percent, transposed), a mistake in
this box only, two swapped rows or columns, or a slip in a few cells. Each box may have its own mistake or slip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array, Arrays
from attn_exp.diagnosis.classroom.boxes import TURNED, Box
from attn_exp.diagnosis.classroom.numbers import Made, bits, case_of
from attn_exp.diagnosis.classroom.worksheet import (
    FEW,
    Sheet,
    Slip,
    compute_stage,
    continue_from,
    part,
    stages,
    swapped,
    unfollowed,
)
from attn_exp.diagnosis.recipes.candidates import GROUPS
from attn_exp.experiment.executing import Stages
from attn_exp.forms.pipeline import Recipe, Step
from attn_exp.mistakes.mistake import Change, around

WRITTEN, MISTAKE, EXCHANGED, SLIP, UNKNOWN, COARSE = (
    "written", "mistake", "exchanged", "slip", "unknown", "coarse",
)  # fmt: skip
"""Kinds of remarks on a box that is not simply right."""
LEAST_WRONG = 3
"""Minimum number of wrong cells that a mistake in one box must explain; one less within some rows or heads."""
SPARE = 6.0
"""Information that a box needs, in bits, beyond what it takes to choose among mistakes."""
SAME = 1e-9
"""Numbers closer than this are the same."""
NUMERALS = ("no", "one", "two", "three", "four", "five", "six")


CUT_TEXT = "truncated after the last decimal instead of rounded"
INTEGERS = 2.0**53
"""A float64 this large has no decimals."""
SKIPPED_BOXES = {
    "logits": ("The softmax is applied to the scores, not to the logits.", "weights = softmax(logits)"),
    "masked": ("The softmax is applied to the logits before they are masked.", "weights = softmax(masked)"),
    "weights": ("The logits themselves are multiplied by v: the weights are left out.", "context = weights @ v"),
}
"""Sentence and remedy if a box is right, but the next box is computed without it."""
SKIPPING_NAMES = {
    ("logits", "no_scale"): "softmax_of_scores", ("masked", "causal_ignored"): "softmax_before_mask",
    ("masked", "mask_ignored"): "softmax_before_mask", ("weights", "no_softmax"): "weights_left_out",
}  # fmt: skip
"""Names of the mistakes in which a right box is not used."""
SKIPPABLE = ("logits", "masked", "weights", "context")
"""Boxes that may be right without being used."""
PaperMistake = tuple[str, str, str, Change]
"""Name, sentence, remedy and change of a mistake that is made with pencil and paper rather than in code."""


@dataclass(frozen=True)
class Remark:
    """A remark on one box, or on the whole sheet: its kind, its sentence, the mistake's name, and the remedy."""

    stage: str
    kind: str
    says: str
    name: str = ""
    remedy: str = ""


@dataclass(frozen=True, eq=False)
class Judged:
    """A graded sheet: which cells are wrong or follow from wrong ones, the remarks, and the right numbers."""

    wrong: dict[str, Array]
    follows: dict[str, Array]
    remarks: tuple[Remark, ...]
    expected: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PossibleMistake:
    """A possible mistake in one box: its name, sentence, fix and recipe, and the earlier box that it skips, if any."""

    name: str
    says: str
    fix: str
    recipe: Recipe
    skipped: str = ""


@dataclass(eq=False)
class Judge:
    """Grades the boxes of a sheet in order, given the `exact` numbers and the `known` results of every mistake.

    If `plainly` is true, the cells are graded without remarks. `written` are the boxes that are graded already, and
    `mended` the same boxes with right numbers in wrong cells, where the mistake is understood.
    """

    sheet: Sheet
    exact: Stages
    known: Sequence[Made]
    digits: int
    plainly: bool = False
    written: list[Box] = field(default_factory=list)
    mended: list[Box] = field(default_factory=list)

    @cached_property
    def possible(self) -> list[PossibleMistake]:
        """The mistakes made on paper, then those of the catalogue, by group."""
        case, sheet = case_of(self.sheet), self.sheet
        on_paper = [
            PossibleMistake(name, says, fix, change(sheet.right))
            for name, says, fix, change in find_paper_mistakes(sheet)
        ]
        known = [(mistakes.mistake(made.candidate.names[0]), made.candidate) for made in self.known]
        known = [pair for pair in known if not pair[0].remark and pair[0].group not in ("precision", "behaviour")]
        in_code = [
            PossibleMistake(candidate.names[0], mistake.says, mistake.fix, candidate.change(case))
            for mistake, candidate in sorted(known, key=lambda pair: GROUPS.index(pair[0].group))
        ]
        return [*on_paper, *in_code]

    def judged(self) -> Judged:
        wrong, follows, remarks, expected = {}, {}, [], {}
        is_after_wrong = False
        for place, as_written in enumerate(self.sheet.boxes):
            box, missed = as_written, self.missed(place, as_written)
            if missed.any() and not self.plainly and (notation := self.find_notation(place, box)):
                remark, box = notation
                remarks.append(remark)
                missed = np.zeros_like(missed)
            follows[box.stage] = box.given & ~missed & box.misses(part(self.exact, box)) & is_after_wrong
            wrong[box.stage] = missed
            corrected = box
            if missed.any():
                if (array := self.from_written(place, box)) is not None:
                    expected[box.stage] = array
                if not self.plainly:
                    remark, corrected = self.explain(place, box, missed)
                    remarks.append(remark)
                is_after_wrong = True
            self.written.append(sharpened(box, self.exact))
            self.mended.append(sharpened(corrected, self.exact))
        return Judged(wrong, follows, tuple(remarks), expected)

    def missed(self, place: int, box: Box) -> Array:
        """Return a mask of the cells that are not right and follow from neither the written nor the corrected boxes."""
        missed = box.misses(part(self.exact, box))
        for earlier in (self.written, self.mended):
            if missed.any() and (place or self.sheet.open):
                missed = missed & unfollowed(
                    replace(self.sheet, boxes=(*earlier[:place], box)), self.sheet.right, place
                )
        return missed

    def find_notation(self, place: int, box: Box) -> tuple[Remark, Box] | None:
        """Return a remark and the box as it was meant, if its numbers are right in another notation."""
        for says, meant in self.notations(box):
            if not self.missed(place, meant).any():
                return Remark(box.stage, WRITTEN, f"{box.stage}: {says}"), meant
        return None

    def notations(self, box: Box) -> Iterator[tuple[str, Box]]:
        if box.stage == "weights":
            yield (
                "in percent instead of fractions of 1",
                replace(box, values=box.values / 100, own=box.own / 100, moves=None),
            )
            if (adjusted := moved_to_one(box)) is not None:
                yield "adjusted slightly, so that the written weights sum to 1", adjusted
        transposed = swapped(box) if TURNED not in box.note else None
        if transposed is not None and box.values.shape[-1] == box.values.shape[-2]:
            yield "the box has rows and columns swapped", transposed
        for other in (box, replace(box, own=own_halves(box.values))):  # as written, and with zeros at its end cut off
            if 1 <= (decimals := decimals_written([other])) < self.digits:
                yield coarse_text(decimals, self.digits), with_halves(box, decimals)
        yield CUT_TEXT, uncut(box)

    def explain(self, place: int, box: Box, missed: Array) -> tuple[Remark, Box]:
        """Return a remark on wrong cells, and the box with these corrected, unless nothing explains them."""
        array = self.from_written(place, box)
        corrected = box
        if array is not None and array.shape == box.values.shape:
            corrected = replace(box, values=np.where(missed, array, box.values))
        are_many = missed.sum() / max(1, box.given.sum()) > FEW
        partner = self.swap_with(box) if are_many else ""
        are_integers = are_many and self.has_integers(box)
        if missed.sum() > 1:
            if not (partner or are_integers) and (remark := self.find_mistake(place, box, missed)):
                return remark, corrected
            if exchange := self.find_exchange(place, box):
                return exchange
        if partner:
            kind, says = EXCHANGED, f"the boxes of {box.stage} and {partner} are swapped"
        elif are_integers:
            kind, says = COARSE, "rounded to whole numbers, which is too coarse to count as right"
        elif not are_many:
            kind, says = SLIP, slip_text(box, missed, array)
        else:
            return Remark(box.stage, UNKNOWN, f"no known mistake gives the numbers of {box.stage}"), box
        return Remark(box.stage, kind, says), corrected

    def swap_with(self, box: Box) -> str:
        """Return which of q, k and v was swapped with this one, or an empty string; the scores must be right."""
        boxes = {other.stage: other for other in self.sheet.boxes}
        scores = boxes.get("scores")
        if box.stage not in "qkv" or scores is None or scores.misses(part(self.exact, scores)).any():
            return ""
        for other in (boxes[side] for side in "qkv" if side in boxes and side != box.stage):
            if not (box.misses(part(self.exact, other)).any() or other.misses(part(self.exact, box)).any()):
                return other.stage
        return ""

    def has_integers(self, box: Box) -> bool:
        """Return whether a box contains the right numbers, rounded to integers although decimals were required."""
        array = part(self.exact, box)
        if array is None or array.shape != box.values.shape or decimals_written([box]) > 0 or self.digits == 0:
            return False
        with np.errstate(invalid="ignore"):
            near = (np.abs(box.values - array) <= 0.5 + SAME) | (box.values == array)
        return bool(near[box.given].all())

    def from_written(self, place: int, box: Box) -> Array | None:
        """Return what follows for a box from the numbers written in the boxes before it."""
        exact = part(self.exact, box)
        if not place or exact is None:
            return exact
        alone = compute_stage(self.sheet, continue_from(self.sheet.right, self.written[:place]), box.stage, 1)
        return None if alone is None else alone[0].reshape(exact.shape)

    def find_mistake(self, place: int, box: Box, missed: Array) -> Remark | None:
        """Return the mistake in this box that explains its wrong numbers: all, or those of some heads or rows."""
        if np.ptp(box.values[missed]) == 0 or self.information(box, missed) < SPARE:
            return None
        for cells, where in parts_of(box, missed):
            if where and self.information(replace(box, values=np.where(cells, box.values, np.nan)), missed) < SPARE:
                continue
            if missed.sum() >= LEAST_WRONG - bool(where) and (found := self.mistake_in(place, box, cells)):
                return Remark(box.stage, MISTAKE, f"{where}{found.says}", found.name, found.fix)
        return None

    def mistake_in(self, place: int, box: Box, cells: Array) -> PossibleMistake | None:
        """Return the first mistake that explains these cells; in q, k or v, the one that fits the three best.

        In the last box, which no other depends on, return two joined by "or" if they explain it equally.
        """
        fits = [
            mistake
            for mistake in self.possible_at(place)
            if (left := self.unexplained(mistake, place, box)) is not None and not (left & cells).any()
        ]
        if box.stage in "qkv" or not fits:
            return min(fits, key=self.missed_sides, default=None)
        first, *others = fits
        other = next((one for one in others if box is self.sheet.boxes[-1] and one.name != first.name), None)
        if other is None:
            return first
        return replace(first, name=f"{first.name} or {other.name}", says=f"{first.says} Or: {other.says}")

    def information(self, box: Box, missed: Array) -> float:
        """Return the information in the given cells of a box, in bits.

        It is the larger of two measures: how far mistakes spread these numbers, and how many other numbers of the
        expected range could be in the wrong cells.
        """
        right = part(self.exact, box)
        finite = np.zeros(1) if right is None else right[np.isfinite(right)]
        unit = 1.0 if np.array_equal(finite, np.round(finite)) else 2 * float(box.halves.max())
        return max(
            bits(box, [array for made in self.known if (array := part(made.stages, box)) is not None]),
            float((missed & box.given).sum()) * math.log2(max(np.ptp(finite) / unit, 1.0)),
        )

    def missed_sides(self, mistake: PossibleMistake) -> int:
        """Count the numbers of q, k and v that a mistake does not reproduce; the likeliest one misses the fewest."""
        made = stages(self.sheet, mistake.recipe)
        return sum(int(box.misses(part(made, box)).sum()) for box in self.sheet.boxes if box.stage in "qkv")

    def possible_at(self, place: int) -> Iterator[PossibleMistake]:
        """Yield the mistakes possible in a box that is computed from the boxes before it, with or without the last."""
        yield from self.possible
        last = self.written[place - 1].stage if place else ""
        for mistake in self.possible if last in SKIPPABLE else ():
            name = SKIPPING_NAMES.get((last, mistake.name))
            if name is None:
                yield replace(mistake, skipped=last)
            else:
                says, fix = SKIPPED_BOXES.get(last, ("", ""))
                yield PossibleMistake(name, says, fix, mistake.recipe, last)

    def unexplained(self, mistake: PossibleMistake, place: int, box: Box) -> Array | None:
        """Return a mask of the cells that a mistake does not explain; None if it explains none of them."""
        earlier = [written for written in self.written[:place] if written.stage != mistake.skipped]
        alone = compute_stage(self.sheet, continue_from(mistake.recipe, earlier), box.stage, 1)
        if alone is None or alone[0].size != box.values.size:
            return None
        array = alone[0].reshape(box.values.shape)
        with np.errstate(invalid="ignore"):
            if box.misses(array, 40 * box.halves).all():  # far off: no need to propagate rounding
                return None
        return (
            unfollowed(replace(self.sheet, boxes=(*earlier, box)), mistake.recipe, len(earlier))
            if earlier or self.sheet.open
            else box.misses(array)
        )

    def find_exchange(self, place: int, box: Box) -> tuple[Remark, Box] | None:
        """Return a remark and the corrected box, if swapping two columns, rows or heads makes its numbers right."""
        axes: list[tuple[int, Sequence[Any], str]] = [(-1, box.names[1], "columns"), (-2, box.names[0], "rows")]
        if box.values.ndim == 3 and len(box.values) > 1:
            axes.append((-3, range(1, len(box.values) + 1), "heads"))
        for axis, names, what in axes:
            for one, other in itertools.combinations(range(box.values.shape[axis]), 2):
                order = list(range(box.values.shape[axis]))
                order[one], order[other] = other, one
                values, halves, own = (np.take(array, order, axis=axis) for array in (box.values, box.halves, box.own))
                corrected = replace(box, values=values, halves=halves, own=own, moves=None)
                if not self.missed(place, corrected).any():
                    return Remark(
                        box.stage, EXCHANGED, f"in {box.stage} the {what} {names[one]} and {names[other]} are swapped"
                    ), corrected
        return None


def parts_of(box: Box, missed: Array) -> Iterator[tuple[Array, str]]:
    """Yield the cells that one mistake may explain, with a phrase if these are only some heads or rows."""
    everywhere = np.ones_like(missed)
    heads = missed.any(axis=(-2, -1), keepdims=True) if box.values.ndim == 3 else everywhere
    if heads.all():
        yield everywhere, ""
    else:
        yield heads & everywhere, f"In head {', '.join(str(head + 1) for head in np.flatnonzero(heads))} only: "
    rows = missed.any(axis=-1, keepdims=True)
    names = [box.names[0][place] for place in np.flatnonzero(rows.reshape(-1, rows.shape[-2]).any(axis=0))]
    if not rows.all() and len(names) < rows.shape[-2]:
        yield rows & everywhere, f"In row {' and '.join(names)} only: "


SOFTMAX = "weights = exp(logit) / sum of exp"
SOFTMAX_MISTAKES = (
    (
        "exp_without_sum", "exp is not divided by the sum of its row.", SOFTMAX,
        lambda normalize, at, masked: np.exp(masked),
    ),
    (
        "exp_over_largest", "exp is divided by the largest exp of its row, not by the sum of the row.", SOFTMAX,
        lambda normalize, at, masked: np.exp(masked - masked.max(axis=-1, keepdims=True)),
    ),
    (
        "exp_over_count", "exp is divided by the number of keys, not by the sum of its row.", SOFTMAX,
        lambda normalize, at, masked: np.exp(masked) / masked.shape[-1],
    ),
    (
        "sum_of_first_row", "Every row is divided by the sum of the first row, not by its own.",
        f"{SOFTMAX} over its own row",
        lambda normalize, at, masked: np.exp(masked) / np.exp(masked)[..., :1, :].sum(axis=-1, keepdims=True),
    ),
    (
        "largest_takes_all", "The largest logit of each row gets all the weight.", SOFTMAX,
        lambda normalize, at, masked: one_hot(masked),
    ),
    (
        "powers_of_ten", "Powers of 10 are taken instead of powers of e.", "exp(logit) = 2.718...^logit",
        lambda normalize, at, masked: normalize(at, masked * math.log(10)),
    ),
    (
        "logits_negated", "The softmax is applied to the negated logits.", "weights = softmax(logits)",
        lambda normalize, at, masked: normalize(at, np.where(np.isinf(masked), masked, -masked)),
    ),
)  # fmt: skip
"""What students compute by mistake instead of the softmax: name, sentence, remedy and step."""


def find_paper_mistakes(sheet: Sheet) -> list[PaperMistake]:
    """Return the mistakes that are possible with pencil and paper on this sheet, in the order of trial."""
    found = [(name, says, fix, around("normalize", step)) for name, says, fix, step in SOFTMAX_MISTAKES]
    found += without_signs(sheet)
    found += [
        ("one_head_for_all", f"The context of head {head + 1} is used for every head.",
         "output = context of all heads, side by side", around("gather", partial(repeat_head, head)))
        for head in range(sheet.settled.head if sheet.settled.head > 1 else 0)
    ]  # fmt: skip
    x = sheet.problem.x
    if x is not None:
        found += [mistake for side in "qkv" for mistake in wrong_projections(side)]
        says = "The weights mix x itself instead of the values v."
        found.append(("values_from_x", says, "context = weights @ v", around("mix", partial(mix_others, x))))
    q = next((box.values for box in sheet.boxes if box.stage == "q"), sheet.problem.q)
    changes = {"keys_from_queries": around("score", lambda score, at, q, k: score(at, q, q))}
    changes |= {"values_from_queries": around("mix", partial(mix_others, q))} if q is not None else {}
    for name, change in changes.items():
        mistake = mistakes.mistake(name)
        found.append((name, mistake.says, mistake.fix, change))
    return found


def wrong_projections(side: str) -> Iterator[PaperMistake]:
    """Yield mistakes in the projection of q, k or v: none, or the matrix of another side."""
    fix = f"{side} = x W_{side}"
    says = f"x itself is used as {side}: W_{side} is left out."
    yield "no_projection", says, fix, around("project", partial(projected_otherwise, side, ""))
    for other in "qkv".replace(side, ""):
        says = f"{side} is computed with W_{other} instead of W_{side}."
        yield "another_matrix", says, fix, around("project", partial(projected_otherwise, side, other))


def without_signs(sheet: Sheet) -> Iterator[PaperMistake]:
    steps = {"scores": "score", "logits": "scaled", "context": "mix", "output": "mix"} | dict.fromkeys("qkv", "place")
    for stage, array in (stages(sheet, sheet.right) or {}).items():
        if stage in steps and (array < 0).any():
            says = f"All minus signs of {stage} are lost.", f"{stage} keeps its signs"
            yield "signs_lost", *says, around(steps[stage], partial(drop_signs, stage))


def drop_signs(stage: str, step: Step, *given: Any) -> Array:
    """Return the absolute values of a step's result; if `stage` is q, k or v, leave the other two unchanged."""
    array: Array = step(*given)
    return array if stage in "qkv" and given[1] != stage else np.abs(array)


def repeat_head(head: int, gather: Step, at: Any, context: Array) -> Array:
    gathered: Array = gather(at, context)
    return np.array(np.broadcast_to(gathered[..., head : head + 1, :, :], gathered.shape))


def mix_others(others: Any, mix: Step, at: Any, weights: Array, v: Array, k: Array) -> Array:
    return np.asarray(mix(at, weights, broadcast_like(v, others), k))


def one_hot(masked: Array) -> Array:
    """Return weight 1 for the (first) largest logit of each row `[... t s]`; 0 everywhere if all are masked."""
    first = masked.argmax(axis=-1)[..., None] == np.arange(masked.shape[-1])
    return np.where(first & np.isfinite(masked), 1.0, 0.0)


def projected_otherwise(
    wrong: str, other: str, project: Step, side: str, x: Array, arrays: Arrays
) -> Array:  # fmt: skip
    """Project q, k or v: `wrong` with the matrix and bias of `other` (or not at all), the others with their own.

    Raises:
        ValueError: the result has a different size.
    """
    projected: Array = project(side, x, arrays)
    if side != wrong:
        return projected
    made = project(other, x, arrays) if other else x
    if made.shape != projected.shape:
        raise ValueError("the matrices have different sizes")
    return made


def broadcast_like(values: Array, other: Any) -> Array:
    """Broadcast other rows `[s d]` or `[h s d]` to the shape of values `[n h s d]`.

    Raises:
        ValueError: the shapes do not fit.
    """
    array = np.asarray(other, float)
    if array.ndim == 2 and values.shape[1] > 1:
        array = array.reshape(len(array), values.shape[1], -1).swapaxes(0, 1)
    return np.array(np.broadcast_to(array, values.shape))


def sharpened(box: Box, exact: Stages) -> Box:
    """Return a box in which exactly right numbers count as unrounded when later boxes are computed from them."""
    array = part(exact, box)
    if array is None or array.shape != box.values.shape:
        return replace(box, moves=None)
    with np.errstate(invalid="ignore"):
        is_exact = np.abs(box.values - array) <= SAME
    return replace(box, moves=np.where(is_exact, 0.0, box.halves))


# Right numbers in other notations


def coarse_text(decimals: int, required: int) -> str:
    plural = "decimal" if decimals == 1 else "decimals"
    return f"rounded too coarsely, to {NUMERALS[decimals]} {plural} instead of {NUMERALS[required]}"


def moved_to_one(box: Box) -> Box | None:
    """Widen the tolerance of rows of weights that sum to exactly 1: one number may have been adjusted for that.

    Return None if no row sums to 1 as written.
    """
    is_complete = box.given.all(axis=-1, keepdims=True)
    sum_to_one = np.isclose(box.values.sum(axis=-1, keepdims=True), 1, rtol=0, atol=SAME)
    widened = is_complete & sum_to_one
    return replace(box, halves=np.where(widened, 3 * box.halves, box.halves), moves=None) if widened.any() else None


def decimals_written(boxes: Sequence[Box]) -> int:
    finest = min((float(box.own.min(initial=0.5, where=np.isfinite(box.values))) for box in boxes), default=0.5)
    return max(0, round(-math.log10(2 * finest)))


def own_halves(values: Array) -> Array:
    """Return half a unit of the last decimal (at most the sixth), for numbers known only by value."""
    halves = np.full(values.shape, 0.5)
    with np.errstate(invalid="ignore"):
        finite_values = np.where(np.abs(values) < INTEGERS, values, 0.0)
    for decimals in range(6):
        has_more = np.abs(finite_values - np.round(finite_values, decimals)) > 1e-9
        halves[has_more] = 0.5 * 10.0 ** -(decimals + 1)
    return halves


def with_halves(box: Box, decimals: int) -> Box:
    halves = np.full(box.values.shape, 0.5 * 10.0**-decimals)
    return replace(box, halves=halves, own=halves, moves=None)


def uncut(box: Box) -> Box:
    """Convert a box of truncated numbers to rounded ones: each is moved to the middle of its possible range."""
    with np.errstate(invalid="ignore"):
        moved = box.values + np.sign(box.values) * box.halves
        halves = np.where(box.values == 0, 2 * box.halves, box.halves)
    return replace(box, values=np.where(np.isfinite(box.values), moved, box.values), halves=halves, moves=None)


def coarser(sheet: Sheet, digits: int) -> tuple[str, Sheet] | None:
    """If the numbers of a sheet have fewer decimals than required, return a remark and a sheet of that lower precision.

    Return None if they have enough decimals, or none at all.
    """
    decimals = decimals_written(sheet.boxes)
    if not 1 <= decimals < digits:
        return None
    return coarse_text(decimals, digits), replace(sheet, boxes=tuple(with_halves(box, decimals) for box in sheet.boxes))


def slip_text(box: Box, missed: Array, expected: Array | None) -> str:
    return f"in {box.stage}, {Slip(box, missed, expected)}"
