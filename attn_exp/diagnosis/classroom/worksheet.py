"""A worksheet: a run's problem, the boxes that a person filled in, and whether a recipe reproduces their numbers.

A number in a box agrees with a recipe if it is the rounded exact result, or if it follows from the rounded numbers in
the boxes before it. The *leeway* of a number is how far the rounding in those boxes can change it.

`agrees` compares a whole sheet with a recipe. `find_unfollowed` returns the cells of a box that do not follow from the
boxes before it. `find_slips` yields the wrong cells of each box. `other_readings` yields the sheet with equivalent
computations and notations, because it may be right in one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.classroom.boxes import TRANSPOSED, Box
from attn_exp.experiment.executing import STAGES, Stages, compute_stages, make_recipe, try_stages
from attn_exp.experiment.variant import Settled
from attn_exp.experiment.verdict import BROKEN, HELD, Finding
from attn_exp.forms.pipeline import Recipe, Step
from attn_exp.problem.problem import Problem

STEPS = {
    "q": "place", "k": "place", "v": "place", "scores": "score", "logits": "scaled", "capped": "bent",
    "masked": "forbid", "weights": "after", "context": "gather",
}  # fmt: skip
"""For each stage, the step of `Recipe` that returns it."""
LAST_STEPS = {**STEPS, "q": "share", "k": "share", "v": "share"}
"""For each stage, the last step that can change it; the step `share` repeats key/value heads."""
MOST_CELLS = 400
"""If more cells than this come before a box, its numbers get no leeway."""
MOST_DRIFT = 40
"""How far rounding in earlier stages can move a number at most, in units of the number's tolerance."""

SHOWN = 4
"""Maximum number of wrong cells that are listed."""
FEW = 1 / 3
"""A slip affects at most this share of a box; more wrong cells mean another computation."""


@dataclass(frozen=True, eq=False)
class SheetCache:
    """Caches of one sheet.

    - `unfollowed`: the results of `find_unfollowed`. The key is the index of the box, and the `id` of each step that
      was used. The value includes the recipe: it keeps these steps alive, so no `id` is reused.
    - `shifted`: the results of `stack_shifted` for the boxes before a box, by the index of the box.
    """

    unfollowed: dict[tuple[int, Shape], tuple[Recipe, Array]] = field(default_factory=dict)
    shifted: dict[int, list[Box]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Sheet:
    """A variant on its problem, and the boxes that are filled in, in the order of the stages.

    `scratch` lists the stages without a box whose numbers the person wrote down elsewhere. These numbers, and those of
    empty cells, may be rounded as in the boxes. If `scratch` is None, all numbers outside the boxes are exact.
    """

    settled: Settled
    problem: Problem
    boxes: tuple[Box, ...]
    scratch: tuple[str, ...] | None = None
    cache: SheetCache = field(default_factory=SheetCache, init=False, repr=False)
    """Results that recipes with the same first steps share."""

    @cached_property
    def uses_scratch(self) -> bool:
        """Whether some numbers are written elsewhere: stages without a box, or empty cells."""
        return self.scratch is not None and (bool(self.scratch) or not all(box.given.all() for box in self.boxes))

    @property
    def right(self) -> Recipe:
        return make_recipe(self.settled)


def run_recipe(sheet: Sheet, recipe: Recipe) -> Stages | None:
    return try_stages(recipe, sheet.settled, sheet.problem)


def get_stage(computed: Stages | None, box: Box) -> Array | None:
    return None if computed is None else computed.get(box.stage)


def agrees(sheet: Sheet, recipe: Recipe) -> bool:
    return reproduces(sheet, recipe, run_recipe(sheet, recipe))


def reproduces(sheet: Sheet, recipe: Recipe, exact: Stages | None) -> bool:
    """Return whether a recipe gives the numbers of all boxes; `exact` are the stages that it computes."""
    first = sheet.boxes[0]
    widening = MOST_DRIFT * first.tolerances if sheet.uses_scratch else 0.0
    if exact is None or first.misses(get_stage(exact, first), widening).any():  # a quick test, which most recipes fail
        return False
    return not any(find_wrong_cells(sheet, recipe, index, exact).any() for index in range(len(sheet.boxes)))


def find_wrong_cells(sheet: Sheet, recipe: Recipe, index: int, exact: Stages | None) -> Array:
    """Return the cells of a box that neither match the recipe's own result nor follow from the boxes before it."""
    box = sheet.boxes[index]
    wrong = box.misses(get_stage(exact, box))
    return wrong & find_unfollowed(sheet, recipe, index) if wrong.any() and (index or sheet.uses_scratch) else wrong


def find_unfollowed(sheet: Sheet, recipe: Recipe, index: int) -> Array:
    """Return a mask of the cells of a box that do not follow from the boxes before it.

    The result is cached; recipes that differ only in later steps share it.
    """
    step_names = [step.name for step in fields(recipe)]
    last_step = LAST_STEPS.get(sheet.boxes[index].stage, "finish")
    names_used = step_names[: step_names.index(last_step) + 1]
    key = index, tuple(id(getattr(recipe, name)) for name in names_used)
    if key not in sheet.cache.unfollowed:
        sheet.cache.unfollowed[key] = recipe, compute_unfollowed(sheet, recipe, index)
    return sheet.cache.unfollowed[key][1]


def compute_unfollowed(sheet: Sheet, recipe: Recipe, index: int) -> Array:
    # A cell is wrong if it differs from what the earlier boxes give as written, by more than the leeway for rounding in
    # these boxes. If all cells are near enough, rounding in numbers written elsewhere adds to the leeway.
    box, earlier = sheet.boxes[index], sheet.boxes[:index]
    computed = compute_stage(sheet, continue_from(recipe, earlier), box.stage, 1)
    predicted = None if computed is None else computed[0]
    wrong = box.misses(predicted)
    if not wrong.any() or predicted is None or predicted.shape != box.values.shape:
        return wrong
    if index not in sheet.cache.shifted:
        sheet.cache.shifted[index] = stack_shifted(earlier)
    leeway = find_leeway(sheet, recipe, sheet.cache.shifted[index], box.stage, predicted)
    if sheet.uses_scratch and not box.misses(predicted, leeway + MOST_DRIFT * box.tolerances).any():
        leeway = leeway + find_scratch_leeway(sheet, continue_from(recipe, earlier), box, predicted)
    return wrong & box.misses(predicted, leeway)


def find_scratch_leeway(sheet: Sheet, recipe: Recipe, box: Box, predicted: Array) -> Array:
    """Return how far a box can change because numbers written elsewhere were rounded.

    These are the numbers of empty cells, and of the stages in `scratch`.
    """
    computed, total = run_recipe(sheet, recipe) or {}, np.zeros_like(predicted)
    tolerance = box.tolerances.max(initial=0.0, where=box.given)
    boxes, scratch = {other.stage: other for other in sheet.boxes}, sheet.scratch or ()
    for stage in (name for name in STAGES[: STAGES.index(box.stage)] if name in computed):
        array = computed[stage]
        if stage in scratch:
            is_elsewhere = np.full(array.shape, True)
        elif stage in boxes and boxes[stage].values.shape == array.shape:
            is_elsewhere = ~boxes[stage].given
        else:
            continue
        tolerances = np.full(array.shape, tolerance)
        written = Box(stage, np.where(is_elsewhere, array, np.nan), tolerances, tolerances, box.names)
        total += find_leeway(sheet, recipe, stack_shifted([written]), box.stage, predicted)
    return total


def find_leeway(sheet: Sheet, recipe: Recipe, shifted: Sequence[Box], stage: str, predicted: Array) -> Array:
    """Return how far a stage can change, to first order, if the numbers before it vary within their rounding.

    It is the sum of the changes when each of these numbers is shifted by its rounding. `shifted` are the boxes from
    `stack_shifted`, and the last copy in each box is unchanged.
    """
    no_leeway = np.zeros_like(predicted)
    if not shifted or len(shifted[0].values) < 2:
        return no_leeway
    variations = compute_stage(sheet, continue_from(recipe, shifted), stage, len(shifted[0].values))
    if variations is None or not np.array_equal(variations[-1], predicted, equal_nan=True):
        return no_leeway  # copies influence each other
    with np.errstate(invalid="ignore", over="ignore"):
        leeway: Array = np.nan_to_num(np.abs(variations - predicted)).sum(axis=0)
    return leeway


def stack_shifted(boxes: Sequence[Box]) -> list[Box]:
    """Return the boxes with stacked copies `[n ...]`: one for each cell, with this cell shifted by its rounding.

    The last copy is unchanged. The list is empty if there are more than `MOST_CELLS` cells.
    """
    indices_of_boxes = [np.argwhere(box.given & np.isfinite(box.values)) for box in boxes]
    cell_count, first_copy, copies = sum(map(len, indices_of_boxes)), 0, []
    for box, indices in zip(boxes, indices_of_boxes, strict=True):
        if cell_count > MOST_CELLS:
            return []
        values = np.repeat(box.values[None], cell_count + 1, axis=0)
        roundings = box.tolerances if box.roundings is None else box.roundings
        values[(np.arange(first_copy, first_copy + len(indices)), *indices.T)] += roundings[tuple(indices.T)]
        copies.append(replace(box, values=values))
        first_copy += len(indices)
    return copies


def compute_stage(sheet: Sheet, recipe: Recipe, stage: str, copies: int) -> Array | None:
    """Compute one stage for n `copies` of the problem, `[n ...]`, and stop there; None if the shapes do not fit."""
    try:
        with np.errstate(all="ignore"):
            stopping_recipe = (
                with_step(recipe, STEPS[stage], stop_after) if (stage in STEPS and stage not in "qkv") else recipe
            )
            array = compute_stages(stopping_recipe, sheet.settled, sheet.problem, copies).get(stage)
    except EnoughError as stopped:
        (array,) = stopped.args
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    shared = sheet.settled.heads.shared  # a recipe repeats the key/value heads for all query heads, but a box does not
    if stage in ("k", "v") and array is not None and array.shape[1] != shared:
        return array[:, :: max(array.shape[1] // shared, 1)]
    return array


# Recipes that continue from a person's numbers, stop early, or round intermediate stages


class EnoughError(Exception):
    """Stops a computation at the requested stage; its only argument is the array of this stage."""


def stop_after(step: Step) -> Step:
    def end(*inputs: Any) -> Any:
        raise EnoughError(step(*inputs))

    return end


def continue_from(recipe: Recipe, boxes: Sequence[Box]) -> Recipe:
    """Return a recipe that computes with the numbers in these boxes instead of those that it would compute itself."""
    steps: dict[str, Any] = {}
    for box in boxes:
        if box.stage in STEPS:
            name = STEPS[box.stage]
            steps[name] = fill_in(steps.get(name, getattr(recipe, name)), box)
    return replace(recipe, **steps)


def with_step(recipe: Recipe, name: str, change: Callable[[Step], Step]) -> Recipe:
    steps: dict[str, Any] = {name: change(getattr(recipe, name))}
    return replace(recipe, **steps)


def fill_in(step: Step, box: Box) -> Step:
    """Return a step whose result has the numbers of a box; cells that are not filled in stay as computed.

    The returned step raises a ValueError if the box has a different shape than the result.
    """

    def fill_side(setup: Any, side: str, heads: Array, positions: Any) -> Array:  # `place`, which is called per side
        array = step(setup, side, heads, positions)
        return fill(array) if side == box.stage else array

    def fill_stage(setup: Any, *inputs: Any) -> Array:
        if not box.given.all():
            return fill(step(setup, *inputs))
        return np.array(np.broadcast_to(box.values, (setup.batch, *box.values.shape[-3:])))

    def fill(array: Array) -> Array:
        if array.shape[1:] != box.values.shape[1 - array.ndim :]:
            raise ValueError("the box has a different shape")
        return np.where(box.given, box.values, array)

    return fill_side if box.stage in "qkv" else fill_stage


def round_steps(recipe: Recipe, digits: int) -> Recipe:
    """Return a recipe that rounds after every step that computes a stage."""

    def round_result(step: Step) -> Step:
        return lambda *inputs: np.round(step(*inputs), digits)

    for name in ("project", "place", "score", "scaled", "bent", "forbid", "after", "gather"):
        recipe = with_step(recipe, name, round_result)
    return recipe


# Wrong cells, the expected numbers, and whether the rest follows from them


@dataclass(frozen=True, eq=False)
class Slip:
    """Wrong cells in one box, and the expected numbers."""

    box: Box
    cells: Array
    expected: Array | None

    def __str__(self) -> str:
        """Describe the first few wrong cells, and count them if there are more."""
        indices = np.argwhere(self.cells).tolist()
        listed = "; ".join(self.cell(index) for index in indices[:SHOWN])
        return f"{listed}; {len(indices)} in all" if len(indices) > SHOWN else listed

    def cell(self, index: Sequence[int]) -> str:
        """Describe one wrong cell, such as `row she, key 2: 0.21 should be 0.12 (digits swapped)`."""
        number, name = float(self.box.values[tuple(index)]), self.box.name_cell(index)
        actual_text, expected = self.box.format_number(index, number), self.expected
        if expected is None or expected.shape != self.box.values.shape or np.isnan(expected[tuple(index)]):
            return f"{name}: {actual_text} is wrong"
        expected_number = float(expected[tuple(index)])
        expected_text = self.box.format_number(index, expected_number)
        kind = name_slip(actual_text, number, expected_text, expected_number)
        return f"{name}: {actual_text} should be {expected_text}{f' ({kind})' if kind else ''}"


def name_slip(actual_text: str, number: float, expected_text: str, expected: float) -> str:
    if number and actual_text.lstrip("-") == expected_text.lstrip("-"):
        return "the sign"
    if number and expected and any(abs(number * factor - expected) <= 0.051 * abs(expected) for factor in (0.1, 10.0)):
        return "the decimal point"
    return "digits swapped" if sorted(actual_text) == sorted(expected_text) else ""


def list_slips(sheet: Sheet) -> list[Slip | None]:
    return list(find_slips(sheet, sheet.right, run_recipe(sheet, sheet.right)))


def find_slips(sheet: Sheet, recipe: Recipe, exact: Stages | None) -> Iterator[Slip | None]:
    """Yield the wrong cells of each box, compared with a recipe and its stages; None for a box without wrong cells.

    After the first wrong box, a number is wrong if it does not follow from the boxes before it, even if it is exact.
    """
    is_after_slip = False
    for index, box in enumerate(sheet.boxes):
        args = (sheet, recipe, index)
        wrong = find_unfollowed(*args) if is_after_slip else find_wrong_cells(*args, exact)
        if not wrong.any():
            yield None
            continue
        computed = run_recipe(sheet, continue_from(recipe, sheet.boxes[:index])) if is_after_slip else exact
        is_after_slip = True
        yield Slip(box, wrong, get_stage(computed, box))


def are_slips(slips: Sequence[Slip | None]) -> bool:
    """Return whether some box has wrong cells, but none has so many that another computation is likelier."""
    shares = [float(slip.cells.sum() / slip.box.given.sum()) for slip in slips if slip]
    return bool(shares) and max(shares) <= FEW


def describe_boxes(sheet: Sheet, slips: Sequence[Slip | None]) -> Iterator[Finding]:
    """Yield a finding on each box: its wrong cells, or that it is right, or that it follows from wrong cells."""
    wrong_already = False
    for box, slip in zip(sheet.boxes, slips, strict=True):
        note = "follows from earlier numbers" if wrong_already else box.count_text
        yield Finding(box.stage, BROKEN, str(slip)) if slip else Finding(box.stage, HELD, note)
        wrong_already |= slip is not None


def check_row_sums(sheet: Sheet) -> Iterator[Finding]:
    """Yield a finding on whether complete rows of softmax weights sum to 1."""
    weights = next((box for box in sheet.boxes if box.stage == "weights"), None)
    if weights is None or not weights.given.all(axis=-1).any() or not sheet.settled.rules.normalizer.exponential:
        return
    totals = weights.values.sum(axis=-1)
    is_complete = weights.given.all(axis=-1) & weights.values.any(axis=-1)
    is_wrong = is_complete & (np.abs(np.where(is_complete, totals, 1.0) - 1) > weights.tolerances.sum(axis=-1) + 1e-9)
    wrong, complete = int(is_wrong.sum()), int(is_complete.sum())
    note = f"{wrong} of {complete} do not; one sums to {totals[is_wrong][0]:.4g}" if wrong else ""
    yield Finding("rows of weights sum to 1", BROKEN if wrong else HELD, note)


# Harmless variations in right numbers: steps done early, logits shifted, transposed tables, intermediate rounding


@dataclass(frozen=True, eq=False)
class Reading:
    """An equivalent computation or notation: the sheet read that way, the recipe to compare it with, and a remark."""

    sheet: Sheet
    recipe: Recipe
    remark: str


def other_readings(sheet: Sheet) -> Iterator[Reading]:
    yield from rename_scores(sheet)
    yield from scale_early(sheet)
    digits = find_coarsest_digits(sheet)
    if digits is not None:
        remark = f"every step is rounded to {digits} decimals, and the next step uses the rounded numbers"
        yield Reading(sheet, round_steps(sheet.right, digits), remark)


def scale_early(sheet: Sheet) -> Iterator[Reading]:
    """Yield the readings in which queries, keys or both are multiplied by the scale, and the scores are not."""
    factor = sheet.settled.multiplier
    if factor == 1 or factor <= 0:
        return
    for name, query_exponent, key_exponent in (("q", 1.0, 0.0), ("k", 0.0, 1.0), ("q and k, half to each", 0.5, 0.5)):
        recipe = sheet.right
        scaled_place = scale_sides(recipe.place, {"q": factor**query_exponent, "k": factor**key_exponent})
        yield Reading(
            sheet,
            replace(recipe, place=scaled_place, scaled=lambda setup, scores: scores),
            f"the scale is already applied to {name}",
        )


def scale_sides(place: Step, factors: dict[str, float]) -> Step:
    return lambda setup, side, heads, positions: place(setup, side, heads, positions) * factors.get(side, 1.0)


def rename_scores(sheet: Sheet) -> Iterator[Reading]:
    """Yield the reading in which "scores" means the scaled scores, as in many documents."""
    present = {box.stage for box in sheet.boxes}
    if "scores" in present and "logits" not in present:
        boxes = tuple(replace(box, stage="logits") if box.stage == "scores" else box for box in sheet.boxes)
        yield Reading(replace(sheet, boxes=boxes), sheet.right, "the scores are already scaled, so they are the logits")


def transpose_sheet(sheet: Sheet) -> Sheet | None:
    """Return the sheet with all boxes transposed; None if the numbers of one do not fit that way."""
    boxes = tuple(box for box in map(transpose_box, sheet.boxes) if box is not None)
    return replace(sheet, boxes=boxes) if len(boxes) == len(sheet.boxes) else None


def transpose_box(box: Box) -> Box | None:
    """Return a transposed box; None if a number lies outside the square that both layouts share."""
    if TRANSPOSED in box.note:
        return box
    *_, rows, columns = box.values.shape
    size = min(rows, columns)
    if box.given[..., size:, :].any() or box.given[..., size:].any():
        return None
    return replace(box.rearrange(partial(transpose_square, size=size)), note=f"{box.note}, {TRANSPOSED}".strip(", "))


def transpose_square(array: Array, size: int) -> Array:
    transposed = np.full(array.shape, np.nan)
    transposed[..., :size, :size] = array[..., :size, :size].swapaxes(-1, -2)
    return transposed


def find_coarsest_digits(sheet: Sheet) -> int | None:
    """Return the number of decimals of the coarsest box, if it has 1 to 4."""
    tolerance = max(float(box.tolerances.max(initial=0.0, where=box.given)) for box in sheet.boxes)
    digits = round(-np.log10(2 * tolerance)) if 0 < tolerance < np.inf else 99
    return int(digits) if 1 <= digits <= 4 else None


def with_own_tolerances(sheet: Sheet) -> Sheet:
    """Return the sheet with each number only as precise as its own digits; the same object if that changes nothing."""
    is_unchanged = all(np.array_equal(box.own_tolerances, box.tolerances) for box in sheet.boxes)
    boxes = tuple(replace(box, tolerances=box.own_tolerances, roundings=None) for box in sheet.boxes)
    return sheet if is_unchanged else replace(sheet, boxes=boxes)
