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
    going_on_from,
    one_stage,
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
LEAST = 3
"""Minimum number of wrong cells that a mistake in one box must explain; one less within some rows or heads."""
SPARE = 6.0
"""Information that a box needs, in bits, beyond what it takes to choose among mistakes."""
NOTHING = 1e-9
"""Numbers closer than this are the same."""
NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


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

    @property
    def known(self) -> bool:
        return all(remark.kind != UNKNOWN for remark in self.remarks)


@dataclass(frozen=True, eq=False)
class Known:
    """A possible mistake in one box: its name, sentence, fix and recipe, and the earlier boxes that it ignores."""

    name: str
    says: str
    fix: str
    recipe: Recipe
    past: tuple[str, ...] = ()


@dataclass(eq=False)
class Judge:
    """Grades the boxes of a sheet in order, given the `exact` numbers and the `known` results of every mistake.

    If `plainly` is true, the cells are graded without remarks.
    """

    sheet: Sheet
    exact: Stages
    known: Sequence[Made]
    digits: int
    plainly: bool = False
    written: list[Box] = field(default_factory=list)
    mended: list[Box] = field(default_factory=list)
    before_wrong: bool = False

    @cached_property
    def ways(self) -> list[Known]:
        case, sheet = case_of(self.sheet), self.sheet
        found = [
            Known(name, one.says, one.fix, made.candidate.change(case))
            for made in self.known
            for name in made.candidate.names[:1]
            for one in [mistakes.mistake(name)]
            if not one.remark and one.group not in ("precision", "behaviour")
        ]
        own = [Known(name, says, fix, change(sheet.right)) for name, says, fix, change in find_paper_mistakes(sheet)]
        return [*own, *sorted(found, key=lambda way: GROUPS.index(mistakes.mistake(way.name).group))]

    def judged(self) -> Judged:
        wrong, follows, remarks, expected = {}, {}, [], {}
        for place, given in enumerate(self.sheet.boxes):
            box, missed = given, self.missed(place, given)
            found = self.otherwise(place, box) if missed.any() and not self.plainly else None
            if found is not None:
                remark, box = found
                remarks.append(remark)
                missed = np.zeros_like(missed)
            plain = box.misses(part(self.exact, box))
            follows[box.stage] = box.given & ~missed & (plain if self.before_wrong else np.zeros_like(plain))
            wrong[box.stage] = missed
            right = box
            if missed.any():
                if (centre := self.centre(place, box)) is not None:
                    expected[box.stage] = centre
                if not self.plainly:
                    said, right = self.explained(place, box, missed)
                    remarks += said
                self.before_wrong = True
            self.written.append(sharpened(box, self.exact))
            self.mended.append(sharpened(right, self.exact))
        return Judged(wrong, follows, tuple(remarks), expected)

    def before(self, mended: bool, place: int, box: Box) -> Sheet:
        earlier = self.mended if mended else self.written
        return replace(self.sheet, boxes=(*earlier[:place], box))

    def missed(self, place: int, box: Box) -> Array:
        """Return a mask of the cells that are not right and follow from neither the written nor the corrected boxes."""
        missed = box.misses(part(self.exact, box))
        for mended in (False, True):
            if missed.any() and (place or self.sheet.open):
                missed = missed & unfollowed(self.before(mended, place, box), self.sheet.right, place)
        return missed

    def otherwise(self, place: int, box: Box) -> tuple[Remark, Box] | None:
        for says, other in self.writings(box):
            if not self.missed(place, other).any():
                return Remark(box.stage, WRITTEN, f"{box.stage}: {says}"), other
        return None

    def writings(self, box: Box) -> Iterator[tuple[str, Box]]:
        if box.stage == "weights":
            yield "in percent instead of fractions of 1", convert_percent(box)
            if (moved := moved_to_one(box)) is not None:
                yield "adjusted slightly, so that the written weights sum to 1", moved
        other = swapped(box) if TURNED not in box.note else None
        if other is not None and box.values.shape[-1] == box.values.shape[-2]:
            yield "the box has rows and columns swapped", other
        for way in (box, replace(box, own=own_halves(box.values))):  # as written, and with zeros at its end cut off
            if 1 <= (decimals := decimals_written([way])) < self.digits:
                yield coarse_text(decimals, self.digits), with_halves(box, decimals)
        yield CUT_TEXT, uncut(box)

    def explained(self, place: int, box: Box, missed: Array) -> tuple[list[Remark], Box]:
        centre = self.centre(place, box)
        right = box
        if centre is not None and centre.shape == box.values.shape:
            right = replace(box, values=np.where(missed, centre, box.values))
        share = missed.sum() / max(1, box.given.sum())
        paper = share > FEW and (self.in_its_box(box) or self.whole_numbers(box))
        remark = self.mistake_at(place, box, missed) if missed.sum() > 1 and not paper else None
        if remark is None and missed.sum() > 1 and (found := self.exchanged(place, box)) is not None:
            remark, right = found
        if remark is not None:
            return [remark], right
        if share > FEW and (stands := self.in_its_box(box)):
            says = f"the boxes of {box.stage} and {stands} are swapped"
            return [Remark(box.stage, EXCHANGED, says)], right
        if share > FEW and self.whole_numbers(box):
            return [Remark(box.stage, COARSE, WHOLE_TEXT)], right
        if share <= FEW:
            return [Remark(box.stage, SLIP, slip_text(box, missed, centre))], right
        return [Remark(box.stage, UNKNOWN, f"no known mistake gives the numbers of {box.stage}")], box

    def in_its_box(self, box: Box) -> str:
        """Return which of q, k and v was swapped with this one, or an empty string; the scores must be right."""
        boxes = {one.stage: one for one in self.sheet.boxes}
        scores = boxes.get("scores")
        if box.stage not in "qkv" or scores is None or scores.misses(part(self.exact, scores)).any():
            return ""
        for other in (boxes[side] for side in "qkv" if side in boxes and side != box.stage):
            if not (box.misses(part(self.exact, other)).any() or other.misses(part(self.exact, box)).any()):
                return other.stage
        return ""

    def whole_numbers(self, box: Box) -> bool:
        array = part(self.exact, box)
        if array is None or array.shape != box.values.shape or decimals_written([box]) > 0 or self.digits == 0:
            return False
        with np.errstate(invalid="ignore"):
            near = (np.abs(box.values - array) <= 0.5 + NOTHING) | (box.values == array)
        return bool(near[box.given].all())

    def centre(self, place: int, box: Box) -> Array | None:
        exact = part(self.exact, box)
        if not place or exact is None:
            return exact
        alone = one_stage(self.sheet, going_on_from(self.sheet.right, self.written[:place]), box.stage, 1)
        return None if alone is None else alone[0].reshape(exact.shape)

    def mistake_at(self, place: int, box: Box, missed: Array) -> Remark | None:
        """Return the mistake in this box that explains its wrong numbers: all, or those of some heads or rows."""
        if np.ptp(box.values[missed]) == 0 or self.told_by(box, missed) < SPARE:
            return None
        for where, only in parts_of(box, missed):
            if missed.sum() < LEAST - bool(only):
                continue
            if only and self.told_by(replace(box, values=np.where(where, box.values, np.nan)), missed) < SPARE:
                continue
            fits = (
                way
                for way in self.ways_at(place)
                if (left := self.left_by(way, place, box)) is not None and not (left & where).any()
            )
            way = min(fits, key=self.missed_sides, default=None) if box.stage in "qkv" else next(fits, None)
            if way is not None:
                return Remark(box.stage, MISTAKE, f"{only}{way.says}", way.name, way.fix)
        return None

    def told_by(self, box: Box, missed: Array) -> float:
        """Return the information in the given cells of a box, in bits.

        It is the larger of two measures: how far mistakes spread these numbers, and how many other numbers of the
        expected range could be in the wrong cells.
        """
        spread = bits(box, [made for one in self.known if (made := part(one.stages, box)) is not None])
        right = part(self.exact, box)
        finite = np.zeros(1) if right is None else right[np.isfinite(right)]
        unit = 1.0 if np.array_equal(finite, np.round(finite)) else 2 * float(box.halves.max())
        return max(spread, float((missed & box.given).sum()) * math.log2(max(np.ptp(finite) / unit, 1.0)))

    def missed_sides(self, way: Known) -> int:
        """Count the numbers of q, k and v that a mistake does not reproduce; the likeliest one misses the fewest."""
        made = stages(self.sheet, way.recipe)
        return sum(int(box.misses(part(made, box)).sum()) for box in self.sheet.boxes if box.stage in "qkv")

    def ways_at(self, place: int) -> Iterator[Known]:
        """Yield the mistakes possible in a box that is computed from the boxes before it, with or without the last."""
        yield from self.ways
        past = self.written[place - 1].stage if place else ""
        if past in PASSED:
            for way in self.ways:
                named = PAST.get((past, way.name), "")
                says, fix = SKIPPED.get(past, ("", "")) if named else (way.says, way.fix)
                yield Known(named or way.name, says, fix, way.recipe, (past,))

    def left_by(self, way: Known, place: int, box: Box) -> Array | None:
        earlier = [one for one in self.written[:place] if one.stage not in way.past]
        alone = one_stage(self.sheet, going_on_from(way.recipe, earlier), box.stage, 1)
        array = None if alone is None else alone[0]
        if array is not None and array.shape != box.values.shape and array.size == box.values.size:
            array = array.reshape(box.values.shape)
        if array is None or array.shape != box.values.shape:
            return None
        with np.errstate(invalid="ignore"):
            far = box.misses(array, 40 * box.halves)
        if far.all():
            return None
        sheet = replace(self.sheet, boxes=(*earlier, box))
        return unfollowed(sheet, way.recipe, len(earlier)) if earlier or self.sheet.open else box.misses(array)

    def exchanged(self, place: int, box: Box) -> tuple[Remark, Box] | None:
        several = box.values.ndim == 3 and len(box.values) > 1
        heads = tuple(str(head + 1) for head in range(len(box.values))) if several else ()
        kinds = ((-1, box.names[1], "columns"), (-2, box.names[0], "rows"), (-3, heads, "heads"))
        for axis, names, what in kinds[: 2 + several]:
            for one, other in itertools.combinations(range(box.values.shape[axis]), 2):
                order = list(range(box.values.shape[axis]))
                order[one], order[other] = other, one
                values, halves, own = (np.take(array, order, axis=axis) for array in (box.values, box.halves, box.own))
                there = replace(box, values=values, halves=halves, own=own, moves=None)
                if not self.missed(place, there).any():
                    says = f"in {box.stage} the {what} {names[one]} and {names[other]} are swapped"
                    return Remark(box.stage, EXCHANGED, says), there
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


SKIPPED = {
    "logits": ("The softmax is applied to the scores, not to the logits.", "weights = softmax(logits)"),
    "masked": ("The softmax is applied to the logits before they are masked.", "weights = softmax(masked)"),
    "weights": ("The logits themselves are multiplied by v: the weights are left out.", "context = weights @ v"),
}
"""Sentence and remedy if a box is right, but the next box is computed without it."""
PAST = {
    ("logits", "no_scale"): "softmax_of_scores", ("masked", "causal_ignored"): "softmax_before_mask",
    ("masked", "mask_ignored"): "softmax_before_mask", ("weights", "no_softmax"): "weights_left_out",
}  # fmt: skip
"""Names of the mistakes in which a right box is not used."""
PASSED = ("logits", "masked", "weights", "context")
"""Boxes that may be right without being used."""


PaperMistake = tuple[str, str, str, Change]
"""Name, sentence, remedy and change of a mistake that is made with pencil and paper rather than in code."""
SOFTMAX = "weights = exp(logit) / sum of exp"
OF_WEIGHTS = (
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
    found = [(name, says, fix, around("normalize", step)) for name, says, fix, step in OF_WEIGHTS]
    found += without_signs(sheet)
    found += [
        ("one_head_for_all", f"The context of head {head + 1} is used for every head.",
         "output = context of all heads, side by side", around("gather", partial(repeat_head, head)))
        for head in range(sheet.settled.head if sheet.settled.head > 1 else 0)
    ]  # fmt: skip
    q = next((box.values for box in sheet.boxes if box.stage == "q"), sheet.problem.q)
    x = sheet.problem.x
    for side in "qkv" if x is not None else "":
        made = {"": ("no_projection", f"x itself is used as {side}: W_{side} is left out.")} | {
            other: ("another_matrix", f"{side} is computed with W_{other} instead of W_{side}.")
            for other in "qkv".replace(side, "")
        }
        found += [(*said, f"{side} = x W_{side}", around("project", partial(projected_otherwise, side, other)))
                  for other, said in made.items()]  # fmt: skip
    if x is not None:
        says = "The weights mix x itself instead of the values v."
        found.append(("values_from_x", says, "context = weights @ v", around("mix", partial(mix_others, x))))
    steps = {"keys_from_queries": around("score", lambda score, at, q, k: score(at, q, q))}
    steps |= {"values_from_queries": around("mix", partial(mix_others, q))} if q is not None else {}
    return [*found, *((name, (one := mistakes.mistake(name)).says, one.fix, step) for name, step in steps.items())]


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
    array = part(exact, box)
    if array is None or array.shape != box.values.shape:
        return replace(box, moves=None)
    with np.errstate(invalid="ignore"):
        there = np.abs(box.values - array) <= NOTHING
    return replace(box, moves=np.where(there, 0.0, box.halves))


# Right numbers in other notations

WHOLE_TEXT = "rounded to whole numbers, which is too coarse to count as right"
CUT_TEXT = "truncated after the last decimal instead of rounded"


def coarse_text(decimals: int, asked: int) -> str:
    plural = "decimal" if decimals == 1 else "decimals"
    return f"rounded too coarsely, to {NUMBERS[decimals]} {plural} instead of {NUMBERS[asked]}"


def convert_percent(box: Box) -> Box:
    return replace(box, values=box.values / 100, own=box.own / 100, moves=None)


def moved_to_one(box: Box) -> Box | None:
    """Widen the tolerance of rows of weights that sum to exactly 1: one number may have been adjusted for that.

    Return None if no row sums to 1 as written.
    """
    given = box.given.all(axis=-1, keepdims=True)
    sums = np.isclose(box.values.sum(axis=-1, keepdims=True), 1, rtol=0, atol=NOTHING)
    moved = given & sums
    return replace(box, halves=np.where(moved, 3 * box.halves, box.halves), moves=None) if moved.any() else None


def decimals_written(boxes: Sequence[Box]) -> int:
    finest = min((float(box.own.min(initial=0.5, where=np.isfinite(box.values))) for box in boxes), default=0.5)
    return max(0, round(-math.log10(2 * finest)))


def own_halves(values: Array) -> Array:
    """Return half a unit of the last decimal (at most the sixth), for numbers known only by value."""
    halves = np.full(values.shape, 0.5)
    with np.errstate(invalid="ignore"):
        short = np.where(np.abs(values) < WHOLE, values, 0.0)
    for decimals in range(6):
        longer = np.abs(short - np.round(short, decimals)) > 1e-9
        halves[longer] = 0.5 * 10.0 ** -(decimals + 1)
    return halves


WHOLE = 2.0**53
"""A float64 this large has no decimals."""


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
    """Return a remark and a sheet of lower precision if its numbers have fewer decimals than required.

    Return None if they have enough decimals, or none at all.
    """
    decimals = decimals_written(sheet.boxes)
    if not 1 <= decimals < digits:
        return None
    boxes = tuple(with_halves(box, decimals) for box in sheet.boxes)
    return coarse_text(decimals, digits), replace(sheet, boxes=boxes)


def slip_text(box: Box, missed: Array, expected: Array | None) -> str:
    return f"in {box.stage}, {Slip(box, missed, expected)}"
