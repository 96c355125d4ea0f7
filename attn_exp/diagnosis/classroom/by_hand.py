"""Grade a worksheet as a teacher does: one box after another, each from the numbers in the boxes before it.

In: a `Sheet`, its exact numbers, and what every mistake would give. Out: a `Judged`, from `Judge.grade`.

A number counts if it is right, or if it follows from the numbers in the earlier boxes, as written or after correction.
Other numbers of a box are explained by the first of these that fits:

- They are right but written differently: coarser, truncated, in percent, or transposed.
- This box has a mistake of its own.
- Two rows or columns are swapped.
- A few cells have slips.
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
from attn_exp.diagnosis.classroom.boxes import TRANSPOSED, Box
from attn_exp.diagnosis.classroom.numbers import Prediction, case_of, count_bits
from attn_exp.diagnosis.classroom.worksheet import (
    FEW,
    MOST_DRIFT,
    Sheet,
    Slip,
    compute_stage,
    continue_from,
    find_unfollowed,
    get_stage,
    run_recipe,
    transpose_box,
)
from attn_exp.diagnosis.recipes.candidates import GROUPS
from attn_exp.experiment.executing import Stages
from attn_exp.forms.pipeline import Recipe, Step
from attn_exp.mistakes.mistake import Change, around

WRITTEN, MISTAKE, EXCHANGED, SLIP, UNKNOWN = "written", "mistake", "exchanged", "slip", "unknown"
"""Kinds of remarks on a box that is not simply right.

- `WRITTEN`: right, but in another notation.
- `EXCHANGED`: boxes, rows or columns are swapped.
- `UNKNOWN`: wrong without explanation.
"""
LEAST_WRONG = 3
"""Minimum number of wrong cells that a mistake in one box must explain; one fewer if only in some rows or heads."""
SPARE_BITS = 6.0
"""Bits of information that the numbers of a box must contain before a mistake is named."""
SAME = 1e-9
"""Numbers that differ by less than this count as the same."""
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
"""Names for skipping a right box, by that box and by the mistake that the next box seems to contain.

If the box of logits is right and the weights look like `no_scale`, the softmax was applied to the scores.
"""
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
    """A graded sheet.

    - `wrong`: which cells of each box are wrong.
    - `follows`: which cells are not right, but follow from wrong ones.
    - `expected`: for each box with wrong cells, what follows from the boxes before it as written.
    """

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
    skipped_stage: str = ""


@dataclass(eq=False)
class Judge:
    """Grades the boxes of a sheet in order.

    - `exact`: the right numbers of all stages.
    - `catalogue`: what every mistake would produce.
    - `digits`: the required number of decimals.
    - `without_remarks`: grade the cells, but do not explain them.
    - `graded`: the boxes that are graded already, as written.
    - `corrected`: the same boxes; if the error is understood, wrong cells have the expected numbers.
    """

    sheet: Sheet
    exact: Stages
    catalogue: Sequence[Prediction]
    digits: int
    without_remarks: bool = False
    graded: list[Box] = field(default_factory=list)
    corrected: list[Box] = field(default_factory=list)

    @cached_property
    def possible_mistakes(self) -> list[PossibleMistake]:
        """The mistakes made on paper, then those of the catalogue, by group."""
        case, sheet = case_of(self.sheet), self.sheet
        on_paper = [
            PossibleMistake(name, says, fix, change(sheet.right))
            for name, says, fix, change in find_paper_mistakes(sheet)
        ]
        candidates = [prediction.candidate for prediction in self.catalogue]
        known = [(mistakes.mistake(candidate.names[0]), candidate) for candidate in candidates]
        known = [pair for pair in known if not pair[0].remark and pair[0].group not in ("precision", "behaviour")]
        in_code = [
            PossibleMistake(candidate.names[0], mistake.says, mistake.fix, candidate.change(case))
            for mistake, candidate in sorted(known, key=lambda pair: GROUPS.index(pair[0].group))
        ]
        return on_paper + in_code

    def grade(self) -> Judged:
        wrong_cells, follows, remarks, expected = {}, {}, [], {}
        is_after_wrong = False
        for index, written in enumerate(self.sheet.boxes):
            box, is_wrong = written, self.find_wrong_cells(index, written)
            if is_wrong.any() and not self.without_remarks and (notation := self.find_notation(index, box)):
                remark, box = notation
                remarks.append(remark)
                is_wrong = np.zeros_like(is_wrong)
            follows[box.stage] = box.given & ~is_wrong & box.misses(get_stage(self.exact, box)) & is_after_wrong
            wrong_cells[box.stage] = is_wrong
            corrected = box
            if is_wrong.any():
                if (array := self.compute_from_written(index, box)) is not None:
                    expected[box.stage] = array
                if not self.without_remarks:
                    remark, corrected = self.explain(index, box, is_wrong)
                    remarks.append(remark)
                is_after_wrong = True
            self.graded.append(mark_exact(box, self.exact))
            self.corrected.append(mark_exact(corrected, self.exact))
        return Judged(wrong_cells, follows, tuple(remarks), expected)

    def find_wrong_cells(self, index: int, box: Box) -> Array:
        """Return a mask of the wrong cells that do not follow from earlier boxes, as written or as corrected."""
        is_wrong = box.misses(get_stage(self.exact, box))
        for earlier_boxes in (self.graded, self.corrected):
            if is_wrong.any() and (index or self.sheet.uses_scratch):
                is_wrong = is_wrong & find_unfollowed(
                    replace(self.sheet, boxes=(*earlier_boxes[:index], box)), self.sheet.right, index
                )
        return is_wrong

    def find_notation(self, index: int, box: Box) -> tuple[Remark, Box] | None:
        """Return a remark and the box as it was meant, if its numbers are right in another notation."""
        for says, meant in self.list_notations(box):
            if not self.find_wrong_cells(index, meant).any():
                return Remark(box.stage, WRITTEN, f"{box.stage}: {says}"), meant
        return None

    def list_notations(self, box: Box) -> Iterator[tuple[str, Box]]:
        if box.stage == "weights":
            yield (
                "in percent instead of fractions of 1",
                replace(box, values=box.values / 100, own_tolerances=box.own_tolerances / 100, roundings=None),
            )
            if (adjusted := widen_rows_of_one(box)) is not None:
                yield "adjusted slightly, so that the written weights sum to 1", adjusted
        transposed = transpose_box(box) if TRANSPOSED not in box.note else None
        if transposed is not None and box.values.shape[-1] == box.values.shape[-2]:
            yield "the box has rows and columns swapped", transposed
        without_zeros = replace(box, own_tolerances=find_own_tolerances(box.values))  # as if 0.50 were written 0.5
        for other in (box, without_zeros):
            if 1 <= (decimals := count_decimals([other])) < self.digits:
                yield describe_rounding(decimals, self.digits), with_tolerance(box, decimals)
        yield CUT_TEXT, undo_truncation(box)

    def explain(self, index: int, box: Box, is_wrong: Array) -> tuple[Remark, Box]:
        """Return a remark on wrong cells, and the box with these corrected, unless nothing explains them."""
        expected = self.compute_from_written(index, box)
        corrected = box
        if expected is not None and expected.shape == box.values.shape:
            corrected = replace(box, values=np.where(is_wrong, expected, box.values))
        are_many = is_wrong.sum() / max(1, box.given.sum()) > FEW
        partner = self.find_swapped_box(box) if are_many else ""
        if is_wrong.sum() > 1:
            if not partner and (remark := self.find_mistake(index, box, is_wrong)):
                return remark, corrected
            if exchange := self.find_swapped_lines(index, box):
                return exchange
        if partner:
            kind, says = EXCHANGED, f"the boxes of {box.stage} and {partner} are swapped"
        elif not are_many:
            kind, says = SLIP, format_slip(box, is_wrong, expected)
        else:
            return Remark(box.stage, UNKNOWN, f"no known mistake gives the numbers of {box.stage}"), box
        return Remark(box.stage, kind, says), corrected

    def find_swapped_box(self, box: Box) -> str:
        """Return which of q, k and v was swapped with this one, or an empty string; the scores must be right."""
        boxes = {other.stage: other for other in self.sheet.boxes}
        scores = boxes.get("scores")
        if box.stage not in "qkv" or scores is None or scores.misses(get_stage(self.exact, scores)).any():
            return ""
        partners = (
            side
            for side in "qkv".replace(box.stage, "")
            if side in boxes and not box.misses(self.exact.get(side)).any()
            if not boxes[side].misses(get_stage(self.exact, box)).any()
        )
        return next(partners, "")

    def compute_from_written(self, index: int, box: Box) -> Array | None:
        """Return what follows for a box from the numbers written in the boxes before it."""
        exact = get_stage(self.exact, box)
        if not index or exact is None:
            return exact
        computed = compute_stage(self.sheet, continue_from(self.sheet.right, self.graded[:index]), box.stage, 1)
        return None if computed is None else computed[0].reshape(exact.shape)

    def find_mistake(self, index: int, box: Box, is_wrong: Array) -> Remark | None:
        """Return the mistake in this box that explains its wrong numbers, at least those of some heads or rows."""
        if np.ptp(box.values[is_wrong]) == 0 or self.measure_information(box, is_wrong) < SPARE_BITS:
            return None
        for cells, where in split_by_heads_and_rows(box, is_wrong):  # an empty `where` stands for the whole box
            some_cells = replace(box, values=np.where(cells, box.values, np.nan))
            if where and self.measure_information(some_cells, is_wrong) < SPARE_BITS:
                continue
            if is_wrong.sum() >= LEAST_WRONG - bool(where) and (found := self.find_mistake_in(index, box, cells)):
                return Remark(box.stage, MISTAKE, f"{where}{found.says}", found.name, found.fix)
        return None

    def find_mistake_in(self, index: int, box: Box, cells: Array) -> PossibleMistake | None:
        """Return the first mistake that explains these cells; for q, k and v, the one that fits all three best.

        In the last box, no later box can decide between two mistakes. If a second one explains the cells too, both are
        returned, joined by "or".
        """
        fitting = [
            mistake
            for mistake in self.list_possible_at(index)
            if (unexplained := self.find_unexplained(mistake, index, box)) is not None
            and not (unexplained & cells).any()
        ]
        if box.stage in "qkv" or not fitting:
            return min(fitting, key=self.count_missed_sides, default=None)
        first, *others = fitting
        other = next((one for one in others if box is self.sheet.boxes[-1] and one.name != first.name), None)
        if other is None:
            return first
        return replace(first, name=f"{first.name} or {other.name}", says=f"{first.says} Or: {other.says}")

    def measure_information(self, box: Box, is_wrong: Array) -> float:
        """Return the information in the given cells of a box, in bits: the larger of two measures.

        The first is how much the known mistakes would change these numbers. The second is how many different numbers,
        within the range of the right ones, could be in the wrong cells.
        """
        exact = get_stage(self.exact, box)
        finite = np.zeros(1) if exact is None else exact[np.isfinite(exact)]
        unit = 1.0 if np.array_equal(finite, np.round(finite)) else 2 * float(box.tolerances.max())
        return max(
            count_bits(box, self.catalogue),
            float((is_wrong & box.given).sum()) * math.log2(max(np.ptp(finite) / unit, 1.0)),
        )

    def count_missed_sides(self, mistake: PossibleMistake) -> int:
        """Count the numbers of q, k and v that a mistake does not reproduce; fewer make the mistake likelier."""
        computed = run_recipe(self.sheet, mistake.recipe)
        return sum(int(box.misses(get_stage(computed, box)).sum()) for box in self.sheet.boxes if box.stage in "qkv")

    def list_possible_at(self, index: int) -> Iterator[PossibleMistake]:
        """Yield the mistakes possible in a box that is computed from the boxes before it.

        Then yield those that also skip the box just before it, such as a softmax of the scores instead of the logits.
        """
        yield from self.possible_mistakes
        previous_stage = self.graded[index - 1].stage if index else ""
        for mistake in self.possible_mistakes if previous_stage in SKIPPABLE else ():
            name = SKIPPING_NAMES.get((previous_stage, mistake.name))
            if name is None:
                yield replace(mistake, skipped_stage=previous_stage)
            else:
                says, fix = SKIPPED_BOXES.get(previous_stage, ("", ""))
                yield PossibleMistake(name, says, fix, mistake.recipe, previous_stage)

    def find_unexplained(self, mistake: PossibleMistake, index: int, box: Box) -> Array | None:
        """Return a mask of the cells that a mistake does not explain; None if it explains none, even with rounding."""
        earlier = [written for written in self.graded[:index] if written.stage != mistake.skipped_stage]
        computed = compute_stage(self.sheet, continue_from(mistake.recipe, earlier), box.stage, 1)
        if computed is None or computed[0].size != box.values.size:
            return None
        predicted = computed[0].reshape(box.values.shape)
        with np.errstate(invalid="ignore"):
            if box.misses(predicted, MOST_DRIFT * box.tolerances).all():  # rounding cannot explain any cell
                return None
        return (
            find_unfollowed(replace(self.sheet, boxes=(*earlier, box)), mistake.recipe, len(earlier))
            if earlier or self.sheet.uses_scratch
            else box.misses(predicted)
        )

    def find_swapped_lines(self, index: int, box: Box) -> tuple[Remark, Box] | None:
        """Return a remark and the corrected box, if swapping two columns, rows or heads makes its numbers right."""
        axes: list[tuple[int, Sequence[Any], str]] = [(-1, box.names[1], "columns"), (-2, box.names[0], "rows")]
        if box.values.ndim == 3 and len(box.values) > 1:
            axes.append((-3, range(1, len(box.values) + 1), "heads"))
        for axis, names, plural in axes:
            for one, other in itertools.combinations(range(box.values.shape[axis]), 2):
                order = list(range(box.values.shape[axis]))
                order[one], order[other] = other, one
                corrected = box.rearrange(partial(np.take, indices=order, axis=axis))
                if not self.find_wrong_cells(index, corrected).any():
                    return Remark(
                        box.stage, EXCHANGED, f"in {box.stage} the {plural} {names[one]} and {names[other]} are swapped"
                    ), corrected
        return None


def split_by_heads_and_rows(box: Box, is_wrong: Array) -> Iterator[tuple[Array, str]]:
    """Yield masks of cells that one mistake may explain, with a phrase such as "In row she only: ".

    The phrase is empty for the whole box.
    """
    everywhere = np.ones_like(is_wrong)
    heads = is_wrong.any(axis=(-2, -1), keepdims=True) if box.values.ndim == 3 else everywhere
    if heads.all():
        yield everywhere, ""
    else:
        yield heads & everywhere, f"In head {', '.join(str(head + 1) for head in np.flatnonzero(heads))} only: "
    rows = is_wrong.any(axis=-1, keepdims=True)
    names = [box.names[0][row] for row in np.flatnonzero(rows.reshape(-1, rows.shape[-2]).any(axis=0))]
    if not rows.all() and len(names) < rows.shape[-2]:
        yield rows & everywhere, f"In row{'s' if len(names) > 1 else ''} {' and '.join(names)} only: "


SOFTMAX = "weights = exp(logit) / sum of exp"
SOFTMAX_MISTAKES = (
    (
        "exp_without_sum", "exp is not divided by the sum of its row.", SOFTMAX,
        lambda normalize, setup, masked: np.exp(masked),
    ),
    (
        "exp_over_largest", "exp is divided by the largest exp of its row, not by the sum of the row.", SOFTMAX,
        lambda normalize, setup, masked: np.exp(masked - masked.max(axis=-1, keepdims=True)),
    ),
    (
        "exp_over_count", "exp is divided by the number of keys, not by the sum of its row.", SOFTMAX,
        lambda normalize, setup, masked: np.exp(masked) / masked.shape[-1],
    ),
    (
        "sum_of_first_row", "Every row is divided by the sum of the first row, not by its own.",
        f"{SOFTMAX} over its own row",
        lambda normalize, setup, masked: np.exp(masked) / np.exp(masked)[..., :1, :].sum(axis=-1, keepdims=True),
    ),
    (
        "largest_takes_all", "The largest logit of each row gets all the weight.", SOFTMAX,
        lambda normalize, setup, masked: one_hot(masked),
    ),
    (
        "powers_of_ten", "Powers of 10 are taken instead of powers of e.", "exp(logit) = 2.718...^logit",
        lambda normalize, setup, masked: normalize(setup, masked * math.log(10)),
    ),
    (
        "logits_negated", "The softmax is applied to the negated logits.", "weights = softmax(logits)",
        lambda normalize, setup, masked: normalize(setup, np.where(np.isinf(masked), masked, -masked)),
    ),
)  # fmt: skip
"""What students compute by mistake instead of the softmax: name, sentence, remedy and step."""


def find_paper_mistakes(sheet: Sheet) -> list[PaperMistake]:
    """Return the mistakes that are possible with pencil and paper on this sheet, in the order of trial."""
    heads = range(sheet.settled.head if sheet.settled.head > 1 else 0)
    found = [
        *((name, says, fix, around("normalize", step)) for name, says, fix, step in SOFTMAX_MISTAKES),
        *list_lost_signs(sheet),
        *(("one_head_for_all", f"The context of head {head + 1} is used for every head.",
           "output = context of all heads, side by side", around("gather", partial(repeat_head, head)))
          for head in heads),
    ]  # fmt: skip
    x = sheet.problem.x
    if x is not None:
        found += [mistake for side in "qkv" for mistake in list_wrong_projections(side)]
        says = "The weights mix x itself instead of the values v."
        found.append(("values_from_x", says, "context = weights @ v", around("mix", partial(mix_others, x))))
    q = next((box.values for box in sheet.boxes if box.stage == "q"), sheet.problem.q)
    changes = {"keys_from_queries": around("score", lambda score, setup, q, k: score(setup, q, q))}
    changes |= {"values_from_queries": around("mix", partial(mix_others, q))} if q is not None else {}
    for name, change in changes.items():
        mistake = mistakes.mistake(name)
        found.append((name, mistake.says, mistake.fix, change))
    return found


def list_wrong_projections(side: str) -> Iterator[PaperMistake]:
    """Yield mistakes in the projection of q, k or v: leaving it out, or using the matrix of another side."""
    fix = f"{side} = x W_{side}"
    says = f"x itself is used as {side}: W_{side} is left out."
    yield "no_projection", says, fix, around("project", partial(project_with_other, side, ""))
    for other in "qkv".replace(side, ""):
        says = f"{side} is computed with W_{other} instead of W_{side}."
        yield "another_matrix", says, fix, around("project", partial(project_with_other, side, other))


def list_lost_signs(sheet: Sheet) -> Iterator[PaperMistake]:
    steps = {"scores": "score", "logits": "scaled", "context": "mix", "output": "mix"} | dict.fromkeys("qkv", "place")
    for stage, array in (run_recipe(sheet, sheet.right) or {}).items():
        if stage in steps and (array < 0).any():
            change = around(steps[stage], partial(drop_signs, stage))
            yield "signs_lost", f"All minus signs of {stage} are lost.", f"{stage} keeps its signs", change


def drop_signs(stage: str, step: Step, *inputs: Any) -> Array:
    """Return the absolute values of a step's result; if `stage` is q, k or v, leave the other two unchanged."""
    array: Array = step(*inputs)
    return array if stage in "qkv" and inputs[1] != stage else np.abs(array)  # `place` gets the side as inputs[1]


def repeat_head(head: int, gather: Step, setup: Any, context: Array) -> Array:
    gathered: Array = gather(setup, context)
    return np.array(np.broadcast_to(gathered[..., head : head + 1, :, :], gathered.shape))


def mix_others(other_values: Any, mix: Step, setup: Any, weights: Array, v: Array, k: Array) -> Array:
    return np.asarray(mix(setup, weights, broadcast_like(v, other_values), k))


def one_hot(masked: Array) -> Array:
    """Return weight 1 for the (first) largest logit of each row `[... t s]`; 0 everywhere if all are masked."""
    first = masked.argmax(axis=-1)[..., None] == np.arange(masked.shape[-1])
    return np.where(first & np.isfinite(masked), 1.0, 0.0)


def project_with_other(
    wrong_side: str, other_side: str, project: Step, side: str, x: Array, arrays: Arrays
) -> Array:  # fmt: skip
    """Project q, k or v: `wrong_side` with the matrix and bias of `other_side`, the others with their own.

    If `other_side` is empty, `wrong_side` is x itself.

    Raises:
        ValueError: the result has a different size.
    """
    projected: Array = project(side, x, arrays)
    if side != wrong_side:
        return projected
    wrongly_projected = project(other_side, x, arrays) if other_side else x
    if wrongly_projected.shape != projected.shape:
        raise ValueError("the matrices have different sizes")
    return wrongly_projected


def broadcast_like(values: Array, other: Any) -> Array:
    """Broadcast other rows `[s d]` or `[h s d]` to the shape of values `[n h s d]`.

    Raises:
        ValueError: the shapes do not fit.
    """
    array = np.asarray(other, float)
    if array.ndim == 2 and values.shape[1] > 1:
        array = array.reshape(len(array), values.shape[1], -1).swapaxes(0, 1)
    return np.array(np.broadcast_to(array, values.shape))


def mark_exact(box: Box, exact: Stages) -> Box:
    """Return the box with its `roundings`: 0 for exactly right numbers, the tolerance for all others."""
    exact_array = get_stage(exact, box)
    if exact_array is None or exact_array.shape != box.values.shape:
        return replace(box, roundings=None)
    with np.errstate(invalid="ignore"):
        is_exact = np.abs(box.values - exact_array) <= SAME
    return replace(box, roundings=np.where(is_exact, 0.0, box.tolerances))


# Right numbers in other notations


def describe_rounding(decimals: int, required: int) -> str:
    plural = "decimal" if decimals == 1 else "decimals"
    return f"rounded too coarsely, to {NUMERALS[decimals]} {plural} instead of {NUMERALS[required]}"


def widen_rows_of_one(box: Box) -> Box | None:
    """Widen the tolerance of rows of weights that sum to exactly 1, where one number may have been adjusted.

    Return None if no row sums to 1 as written.
    """
    sum_to_one = np.isclose(box.values.sum(axis=-1, keepdims=True), 1, rtol=0, atol=SAME)
    is_widened = box.given.all(axis=-1, keepdims=True) & sum_to_one
    tolerances = np.where(is_widened, 3 * box.tolerances, box.tolerances)
    return replace(box, tolerances=tolerances, roundings=None) if is_widened.any() else None


def count_decimals(boxes: Sequence[Box]) -> int:
    """Return the largest number of decimals with which a number is written."""
    finest = min(
        (float(box.own_tolerances.min(initial=0.5, where=np.isfinite(box.values))) for box in boxes), default=0.5
    )
    return max(0, round(-math.log10(2 * finest)))


def find_own_tolerances(values: Array) -> Array:
    """Return half a unit of the last nonzero decimal of each number; at most six decimals count.

    This is the assumed precision if it is unknown with how many decimals a number was written.
    """
    tolerances = np.full(values.shape, 0.5)
    with np.errstate(invalid="ignore"):
        finite_values = np.where(np.abs(values) < INTEGERS, values, 0.0)
    for decimals in range(6):
        has_more = np.abs(finite_values - np.round(finite_values, decimals)) > 1e-9
        tolerances[has_more] = 0.5 * 10.0 ** -(decimals + 1)
    return tolerances


def with_tolerance(box: Box, decimals: int) -> Box:
    tolerances = np.full(box.values.shape, 0.5 * 10.0**-decimals)
    return replace(box, tolerances=tolerances, own_tolerances=tolerances, roundings=None)


def undo_truncation(box: Box) -> Box:
    """Move each truncated number to the middle of its possible range, as if it had been rounded."""
    with np.errstate(invalid="ignore"):
        middle = box.values + np.sign(box.values) * box.tolerances
        tolerances = np.where(box.values == 0, 2 * box.tolerances, box.tolerances)
    values = np.where(np.isfinite(box.values), middle, box.values)
    return replace(box, values=values, tolerances=tolerances, roundings=None)


def find_coarser(sheet: Sheet, digits: int) -> tuple[str, Sheet] | None:
    """Return a remark, and the sheet with lower precision, if its numbers have fewer decimals than required.

    Return None if they have enough decimals, or none at all.
    """
    decimals = count_decimals(sheet.boxes)
    if not 1 <= decimals < digits:
        return None
    boxes = tuple(with_tolerance(box, decimals) for box in sheet.boxes)
    return describe_rounding(decimals, digits), replace(sheet, boxes=boxes)


def format_slip(box: Box, is_wrong: Array, expected: Array | None) -> str:
    return f"in {box.stage}, {Slip(box, is_wrong, expected)}"
