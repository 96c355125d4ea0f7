"""A worksheet: a run's problem, the boxes that a person filled in, and whether a recipe reproduces their numbers.

A box agrees if its numbers are those of the exact computation, rounded; or if they follow from the rounded numbers in
the boxes before it; or if they lie in between, as far as the rounding of those boxes can change the result.

`agrees` compares a whole sheet with a recipe, `unfollowed` one box with the boxes before it. `slips_of` lists the wrong
cells. `other_readings` yields equivalent computations and notations, in which a sheet may be right too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.classroom.boxes import TURNED, Box
from attn_exp.experiment.executing import STAGES, Stages, compute_stages, make_recipe, try_stages
from attn_exp.experiment.variant import Settled
from attn_exp.experiment.verdict import BROKEN, HELD, Finding
from attn_exp.forms.pipeline import Recipe, Step
from attn_exp.problem.problem import Problem

STEPS = {
    "q": "place", "k": "place", "v": "place", "scores": "score", "logits": "scaled", "capped": "bent",
    "masked": "forbid", "weights": "after", "context": "gather",
}  # fmt: skip
"""The last step that computes each stage."""
LAST = {**STEPS, "q": "share", "k": "share", "v": "share"}
"""The last step that affects each stage, including the sharing of key/value heads."""
MOST_CELLS = 400
"""With more numbers than this, rounding is not propagated cell by cell."""
MOST_DRIFT = 40
"""How far rounding in stages without a box may move a number, in units of the number's tolerance."""

SHOWN = 4
"""Maximum number of wrong cells that are listed."""
FEW = 1 / 3
"""A slip affects at most this share of a box; more wrong cells mean another computation."""
LOGITS = ("scores", "logits", "capped", "masked")
"""Stages in which a constant per query changes nothing that follows."""


@dataclass(frozen=True, eq=False)
class Followed:
    """Caches of one sheet.

    `missed` contains the cells of a box that do not follow from earlier boxes, by the `id` of the steps used, with a
    recipe that keeps these steps alive. `moving` contains copies of the first boxes, each with one cell shifted by its
    rounding.
    """

    missed: dict[tuple[int, Shape], tuple[Recipe, Array]] = field(default_factory=dict)
    moving: dict[int, list[Box]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Sheet:
    """A variant on its problem, and the boxes that are filled in, in the order of the stages.

    `scratch` lists stages that have no box and are written down elsewhere; like empty cells, they are rounded as in the
    boxes. None means that all of them are exact.
    """

    settled: Settled
    problem: Problem
    boxes: tuple[Box, ...]
    scratch: tuple[str, ...] | None = None
    followed: Followed = field(default_factory=Followed, init=False, repr=False)
    """Cache for recipes that share their first steps."""

    @cached_property
    def open(self) -> bool:
        """Whether some numbers are written elsewhere: stages without a box, or empty cells."""
        return self.scratch is not None and (bool(self.scratch) or not all(box.given.all() for box in self.boxes))

    @property
    def right(self) -> Recipe:
        return make_recipe(self.settled)


def stages(sheet: Sheet, recipe: Recipe) -> Stages | None:
    return try_stages(recipe, sheet.settled, sheet.problem)


def part(made: Stages | None, box: Box) -> Array | None:
    return None if made is None else made.get(box.stage)


def agrees(sheet: Sheet, recipe: Recipe) -> bool:
    return gives(sheet, recipe, stages(sheet, recipe))


def gives(sheet: Sheet, recipe: Recipe, exact: Stages | None) -> bool:
    first = sheet.boxes[0]
    if exact is None or first.misses(part(exact, first), MOST_DRIFT * first.halves if sheet.open else 0.0).any():
        return False
    return not any(wrong(sheet, recipe, place, exact).any() for place in range(len(sheet.boxes)))


def wrong(sheet: Sheet, recipe: Recipe, place: int, exact: Stages | None) -> Array:
    """Return the cells of a box that neither match the recipe's own result nor follow from the boxes before it."""
    box = sheet.boxes[place]
    missed = box.misses(part(exact, box))
    return missed & unfollowed(sheet, recipe, place) if missed.any() and (place or sheet.open) else missed


def unfollowed(sheet: Sheet, recipe: Recipe, place: int) -> Array:
    """Return the cells of a box that do not follow from the boxes before it.

    Recipes that differ only in later steps share the cached result.
    """
    names = [step.name for step in fields(recipe)]
    last = LAST.get(sheet.boxes[place].stage, "finish")
    steps = (getattr(recipe, name) for name in (*itertools.takewhile(lambda name: name != last, names), last))
    key = place, tuple(map(id, steps))
    if key not in sheet.followed.missed:
        sheet.followed.missed[key] = recipe, compute_unfollowed(sheet, recipe, place)
    return sheet.followed.missed[key][1]


def compute_unfollowed(sheet: Sheet, recipe: Recipe, place: int) -> Array:
    box, earlier = sheet.boxes[place], sheet.boxes[:place]
    computed = compute_stage(sheet, continue_from(recipe, earlier), box.stage, 1)
    predicted = None if computed is None else computed[0]
    missed = box.misses(predicted)
    if not missed.any() or predicted is None or predicted.shape != box.values.shape:
        return missed
    if place not in sheet.followed.moving:
        sheet.followed.moving[place] = nudge_cells(earlier)
    leeway = reach(sheet, recipe, sheet.followed.moving[place], box.stage, predicted)
    if sheet.open and not box.misses(predicted, leeway + MOST_DRIFT * box.halves).any():
        leeway = leeway + reach_of_scratch(sheet, continue_from(recipe, earlier), box, predicted)
    return missed & box.misses(predicted, leeway)


def reach_of_scratch(sheet: Sheet, recipe: Recipe, box: Box, predicted: Array) -> Array:
    """Return how far a box can change if numbers written elsewhere are rounded: empty cells, and stages without box."""
    made, total = stages(sheet, recipe) or {}, np.zeros_like(predicted)
    half = box.halves.max(initial=0.0, where=box.given)
    boxes, scratch = {other.stage: other for other in sheet.boxes}, sheet.scratch or ()
    for stage in itertools.takewhile(lambda stage: stage != box.stage, (name for name in STAGES if name in made)):
        array = made[stage]
        if stage in scratch:
            elsewhere = np.full(array.shape, True)
        elif stage in boxes and boxes[stage].values.shape == array.shape:
            elsewhere = ~boxes[stage].given
        else:
            continue
        halves = np.full(array.shape, half)
        written = Box(stage, np.where(elsewhere, array, np.nan), halves, halves, box.names)
        total += reach(sheet, recipe, nudge_cells([written]), box.stage, predicted)
    return total


def reach(sheet: Sheet, recipe: Recipe, nudged: Sequence[Box], stage: str, predicted: Array) -> Array:
    """Return how far a stage can change, to first order, if the numbers before it vary within their rounding.

    `nudged` are the boxes from `nudge_cells`, whose last copy is unchanged.
    """
    unknown = np.zeros_like(predicted)
    if not nudged or len(nudged[0].values) < 2:
        return unknown
    moved = compute_stage(sheet, continue_from(recipe, nudged), stage, len(nudged[0].values))
    if moved is None or not np.array_equal(moved[-1], predicted, equal_nan=True):
        return unknown  # copies influence each other
    with np.errstate(invalid="ignore", over="ignore"):
        total: Array = np.nan_to_num(np.abs(moved - predicted)).sum(axis=0)
    return total


def nudge_cells(boxes: Sequence[Box]) -> list[Box]:
    """Stack copies of the boxes `[n ...]`: one per cell with that cell shifted by its rounding, and one unchanged."""
    indices_of_boxes = [np.argwhere(box.given & np.isfinite(box.values)) for box in boxes]
    count, copy, copies = sum(map(len, indices_of_boxes)), 0, []
    for box, indices in zip(boxes, indices_of_boxes, strict=True):
        if count > MOST_CELLS:
            return []
        values = np.repeat(box.values[None], count + 1, axis=0)
        moves = box.halves if box.moves is None else box.moves
        values[(np.arange(copy, copy + len(indices)), *indices.T)] += moves[tuple(indices.T)]
        copies.append(replace(box, values=values))
        copy += len(indices)
    return copies


def compute_stage(sheet: Sheet, recipe: Recipe, stage: str, copies: int) -> Array | None:
    """Compute one stage of `copies` of the problem, `[n ...]`, and stop there; None if the shapes do not fit."""
    try:
        with np.errstate(all="ignore"):
            stopping = (
                with_step(recipe, STEPS[stage], stop_after) if (stage in STEPS and stage not in "qkv") else recipe
            )
            array = compute_stages(stopping, sheet.settled, sheet.problem, copies).get(stage)
    except EnoughError as stopped:
        (array,) = stopped.args
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    shared = sheet.settled.heads.shared
    if stage in ("k", "v") and array is not None and array.shape[1] != shared:
        return array[:, :: max(array.shape[1] // shared, 1)]
    return array


# Recipes that continue from a person's numbers, stop early, or round intermediate stages


class EnoughError(Exception):
    """Carries the requested stage, its only argument, out of a computation, which stops there."""


def stop_after(step: Step) -> Step:
    def end(*given: Any) -> Any:
        raise EnoughError(step(*given))

    return end


def continue_from(recipe: Recipe, boxes: Sequence[Box]) -> Recipe:
    """Return a recipe that computes with the numbers in these boxes instead of its own."""
    steps: dict[str, Any] = {}
    for box in boxes:
        if box.stage in STEPS:
            name = STEPS[box.stage]
            steps[name] = filled(steps.get(name, getattr(recipe, name)), box)
    return replace(recipe, **steps)


def with_step(recipe: Recipe, name: str, change: Callable[[Step], Step]) -> Recipe:
    steps: dict[str, Any] = {name: change(getattr(recipe, name))}
    return replace(recipe, **steps)


def filled(step: Step, box: Box) -> Step:
    """Return a step whose result has the numbers of a box in the cells that are filled in.

    Raises:
        ValueError: (the returned step) the box has a different shape than the result.
    """

    def place(at: Any, side: str, heads: Array, positions: Any) -> Array:  # the step of q, k and v
        array = step(at, side, heads, positions)
        return fill(array) if side == box.stage else array

    def other_stage(at: Any, *inputs: Any) -> Array:
        if not box.given.all():
            return fill(step(at, *inputs))
        return np.array(np.broadcast_to(box.values, (at.batch, *box.values.shape[-3:])))

    def fill(array: Array) -> Array:
        if array.shape[1:] != box.values.shape[1 - array.ndim :]:
            raise ValueError("the box has a different shape")
        return np.where(box.given, box.values, array)

    return place if box.stage in "qkv" else other_stage


def rounded(recipe: Recipe, digits: int) -> Recipe:
    """Return a recipe that rounds after every step that computes a stage."""

    def rounding(step: Step) -> Step:
        return lambda *inputs: np.round(step(*inputs), digits)

    for name in ("project", "place", "score", "scaled", "bent", "forbid", "after", "gather"):
        recipe = with_step(recipe, name, rounding)
    return recipe


# Wrong cells, the expected numbers, and whether the rest follows from them


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

    def cell(self, index: Sequence[int]) -> str:
        """Describe one wrong cell, such as `row she, key 2: 0.21 should be 0.12 (digits swapped)`."""
        number, where = float(self.box.values[tuple(index)]), self.box.where(index)
        written, expected = self.box.write_like(index, number), self.expected
        if expected is None or expected.shape != self.box.values.shape or np.isnan(expected[tuple(index)]):
            return f"{where}: {written} is wrong"
        right = float(expected[tuple(index)])
        right_written = self.box.write_like(index, right)
        kind = kind_of_slip(written, number, right_written, right)
        return f"{where}: {written} should be {right_written}{f' ({kind})' if kind else ''}"


def kind_of_slip(written: str, number: float, right_written: str, right: float) -> str:
    if number and written.lstrip("-") == right_written.lstrip("-"):
        return "the sign"
    if number and right and any(abs(number * factor - right) <= 0.051 * abs(right) for factor in (0.1, 10.0)):
        return "the decimal point"
    return "digits swapped" if sorted(written) == sorted(right_written) else ""


def every_slip(sheet: Sheet) -> list[Slip | None]:
    return list(slips_of(sheet, sheet.right, stages(sheet, sheet.right)))


def slips_of(sheet: Sheet, recipe: Recipe, exact: Stages | None) -> Iterator[Slip | None]:
    """Yield the wrong cells of each box relative to a recipe whose stages are known; None for a box without any.

    After the first wrong box, numbers that are right but do not follow from it are wrong too.
    """
    is_after_slip = False
    for place, box in enumerate(sheet.boxes):
        missed = unfollowed(sheet, recipe, place) if is_after_slip else wrong(sheet, recipe, place, exact)
        if not missed.any():
            yield None
            continue
        made = stages(sheet, continue_from(recipe, sheet.boxes[:place])) if is_after_slip else exact
        is_after_slip = True
        yield Slip(box, missed, part(made, box))


def is_slip(slips: Sequence[Slip | None]) -> bool:
    shares = [float(slip.cells.sum() / slip.box.given.sum()) for slip in slips if slip]
    return bool(shares) and max(shares) <= FEW


def after_slips(sheet: Sheet, slips: Sequence[Slip | None]) -> Iterator[Finding]:
    wrong_already = False
    for box, slip in zip(sheet.boxes, slips, strict=True):
        good = "follows from earlier numbers" if wrong_already else box.counted
        yield Finding(box.stage, BROKEN, str(slip)) if slip else Finding(box.stage, HELD, good)
        wrong_already = wrong_already or slip is not None


def sums(sheet: Sheet) -> Iterator[Finding]:
    """Yield a finding on whether complete rows of softmax weights sum to 1."""
    weights = next((box for box in sheet.boxes if box.stage == "weights"), None)
    if weights is None or not weights.given.all(axis=-1).any() or not sheet.settled.rules.normalizer.exponential:
        return
    totals = weights.values.sum(axis=-1)
    complete = weights.given.all(axis=-1) & weights.values.any(axis=-1)
    bad = complete & (np.abs(np.where(complete, totals, 1.0) - 1) > weights.halves.sum(axis=-1) + 1e-9)
    note = f"{int(bad.sum())} of {int(complete.sum())} do not; one sums to {totals[bad][0]:.4g}" if bad.any() else ""
    yield Finding("rows of weights sum to 1", BROKEN if bad.any() else HELD, note)


# Harmless variations in right numbers: steps done early, logits shifted, transposed tables, intermediate rounding


@dataclass(frozen=True, eq=False)
class Reading:
    """An equivalent computation or notation: the boxes, the recipe, and the remark on it."""

    sheet: Sheet
    recipe: Recipe
    remark: str


def other_readings(sheet: Sheet) -> Iterator[Reading]:
    yield from rename_scores(sheet)
    yield from scale_early(sheet)
    yield from shift_logits(sheet)
    digits = fewest_digits(sheet)
    if digits is not None:
        remark = f"every step is rounded to {digits} decimals, and the next step uses the rounded numbers"
        yield Reading(sheet, rounded(sheet.right, digits), remark)


def scale_early(sheet: Sheet) -> Iterator[Reading]:
    factor = sheet.settled.multiplier
    if factor == 1 or factor <= 0:
        return
    for name, query, key in (("q", 1.0, 0.0), ("k", 0.0, 1.0), ("q and k, half to each", 0.5, 0.5)):
        recipe = sheet.right
        place = times(recipe.place, {"q": factor**query, "k": factor**key})
        yield Reading(
            sheet,
            replace(recipe, place=place, scaled=lambda at, scores: scores),
            f"the scale is already applied to {name}",
        )


def times(place: Step, factors: dict[str, float]) -> Step:
    return lambda at, side, heads, positions: place(at, side, heads, positions) * factors.get(side, 1.0)


def shift_logits(sheet: Sheet) -> Iterator[Reading]:
    """Yield the alternative that adds a constant to all logits of a query, which a softmax ignores."""
    exact = stages(sheet, sheet.right)
    if exact is None or not sheet.settled.rules.normalizer.exponential:
        return
    boxes = tuple(subtract_row_mean(box, exact.get(box.stage)) for box in sheet.boxes)
    if any(shifted is not box for shifted, box in zip(boxes, sheet.boxes, strict=True)):
        yield Reading(replace(sheet, boxes=boxes), sheet.right, "a constant is added to all logits of a query")


def subtract_row_mean(box: Box, array: Array | None) -> Box:
    """Subtract from each row of a box of logits its mean deviation from `array`; return any other box unchanged."""
    if box.stage not in LOGITS or array is None or array.shape != box.values.shape or not box.misses(array).any():
        return box
    with np.errstate(invalid="ignore"):
        deviations = np.where(np.isfinite(array) & box.given, box.values - array, np.nan)
    counts = np.isfinite(deviations).sum(axis=-1, keepdims=True)
    if (counts[box.given.any(axis=-1, keepdims=True)] < 2).any():
        return box
    mean = np.nansum(deviations, axis=-1, keepdims=True) / np.maximum(counts, 1)
    return replace(box, values=box.values - mean, halves=2 * box.halves, own=2 * box.own, moves=None)


def rename_scores(sheet: Sheet) -> Iterator[Reading]:
    """Yield the alternative in which "scores" means the scaled scores, as in many documents."""
    present = {box.stage for box in sheet.boxes}
    if "scores" in present and "logits" not in present:
        boxes = tuple(replace(box, stage="logits") if box.stage == "scores" else box for box in sheet.boxes)
        yield Reading(replace(sheet, boxes=boxes), sheet.right, "the scores are already scaled, so they are the logits")


def transpose_sheet(sheet: Sheet) -> Sheet | None:
    """Return the sheet with all boxes transposed; None if the numbers of one do not fit that way."""
    boxes = tuple(box for box in map(swapped, sheet.boxes) if box is not None)
    return replace(sheet, boxes=boxes) if len(boxes) == len(sheet.boxes) else None


def swapped(box: Box) -> Box | None:
    """Return a transposed box; None if a number lies outside the square that both layouts share."""
    if TURNED in box.note:
        return box
    *_, rows, columns = box.values.shape
    size = min(rows, columns)
    if box.given[..., size:, :].any() or box.given[..., size:].any():
        return None
    values, halves, own = (transpose_square(array, size) for array in (box.values, box.halves, box.own))
    return replace(box, values=values, halves=halves, own=own, moves=None, note=f"{box.note}, {TURNED}".strip(", "))


def transpose_square(array: Array, size: int) -> Array:
    whole = np.full(array.shape, np.nan)
    whole[..., :size, :size] = array[..., :size, :size].swapaxes(-1, -2)
    return whole


def fewest_digits(sheet: Sheet) -> int | None:
    """Return the number of decimals of the coarsest box, if it has 1 to 4."""
    half = max(float(box.halves.max(initial=0.0, where=box.given)) for box in sheet.boxes)
    digits = round(-np.log10(2 * half)) if 0 < half < np.inf else 99
    return int(digits) if 1 <= digits <= 4 else None


def by_own_digits(sheet: Sheet) -> Sheet:
    """Return the sheet with the tolerances that each number's own digits imply; the same object if none changes."""
    boxes = tuple(replace(box, halves=box.own, moves=None) for box in sheet.boxes)
    same = all(np.array_equal(new.halves, old.halves) for new, old in zip(boxes, sheet.boxes, strict=True))
    return sheet if same else replace(sheet, boxes=boxes)
