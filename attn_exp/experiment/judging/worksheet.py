"""A worksheet: a run's problem, the boxes that a person filled in, and whether a way to compute gives their numbers.

A box agrees where its numbers are those of the exact computation, rounded; or those that follow from the rounded
numbers in the boxes before it; or lie between, as far as the rounding of those boxes moves the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.experiment.judging.boxes import STAGES, Box
from attn_exp.experiment.mistaken import copied, right, traced
from attn_exp.experiment.mistakes.recipe import Recipe, Step
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem

Array = NDArray[Any]
Stages = dict[str, Array]

STEPS = {
    "q": "place", "k": "place", "v": "place", "scores": "score", "logits": "scaled", "capped": "bent",
    "masked": "forbid", "weights": "after", "context": "gather",
}  # fmt: skip
"""The last step of each stage."""
MOST_CELLS = 400
"""Of more numbers than this the rounding is not carried through one by one."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """A variant on its problem, and the boxes that are filled in, in the order of the stages.

    `recipe` stands for the right computation, where slips are looked for beside a mistake.
    """

    settled: Settled
    problem: Problem
    boxes: tuple[Box, ...]
    recipe: Recipe | None = None

    @property
    def right(self) -> Recipe:
        """The steps of the right computation."""
        return right(self.settled) if self.recipe is None else self.recipe


def stages(sheet: Sheet, recipe: Recipe) -> Stages | None:
    """Return the stages that a recipe gives on the problem, or None where it does not fit the shapes."""
    try:
        with np.errstate(all="ignore"):
            trace = traced(recipe, sheet.settled, sheet.problem)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    arrays = dict(trace.stages())
    for name in "kv":
        if name in arrays and len(arrays[name]) != sheet.settled.heads.shared:
            arrays[name] = arrays[name][:: max(len(arrays[name]) // sheet.settled.heads.shared, 1)]
    return {name: array for name, array in arrays.items() if name in STAGES}


def part(made: Stages | None, box: Box) -> Array | None:
    """Return the numbers of a box's stage, if there are any."""
    return None if made is None else made.get(box.stage)


def agrees(sheet: Sheet, recipe: Recipe) -> bool:
    """Say whether a recipe gives the numbers of every box."""
    exact = stages(sheet, recipe)
    if exact is None or sheet.boxes[0].misses(part(exact, sheet.boxes[0])).any():
        return False
    return not any(wrong(sheet, recipe, place, exact).any() for place in range(len(sheet.boxes)))


def wrong(sheet: Sheet, recipe: Recipe, place: int, exact: Stages | None) -> Array:
    """Return the cells of a box that the recipe does not give, neither exactly nor from the boxes before."""
    box = sheet.boxes[place]
    missed = box.misses(part(exact, box))
    return missed & unfollowed(sheet, recipe, place) if missed.any() and place else missed


def unfollowed(sheet: Sheet, recipe: Recipe, place: int) -> Array:
    """Return the cells of a box that do not follow from the boxes before it."""
    box, earlier = sheet.boxes[place], sheet.boxes[:place]
    centre = stages(sheet, held(recipe, earlier))
    missed = box.misses(part(centre, box))
    if not missed.any() or centre is None or box.stage not in centre:
        return missed
    return missed & box.misses(centre[box.stage], reach(sheet, recipe, earlier, box.stage, centre[box.stage]))


def reach(sheet: Sheet, recipe: Recipe, earlier: Sequence[Box], stage: str, centre: Array) -> Array:
    """Return how far a stage moves while the numbers before it move within their rounding, to first order."""
    total = np.zeros_like(centre)
    if sum(int(box.given.sum()) for box in earlier) > MOST_CELLS:
        return total
    twice = many(sheet, held(recipe, earlier), 2)
    apart = twice is None or not np.array_equal(twice[stage], np.stack([centre, centre]), equal_nan=True)
    for index, box in enumerate(earlier):
        cells = np.argwhere(box.given & np.isfinite(box.values))
        for group in cells[:, None] if apart else [cells] * bool(len(cells)):  # at once, unless copies mix
            nudged = np.repeat(box.values[None], len(group), axis=0)
            nudged[(np.arange(len(group)), *group.T)] += box.halves[tuple(group.T)]
            others = [*earlier[:index], replace(box, values=nudged), *earlier[index + 1 :]]
            moved = many(sheet, held(recipe, others), len(group))
            if moved is not None and moved[stage].shape[1:] == total.shape:
                with np.errstate(invalid="ignore", over="ignore"):
                    total += np.nan_to_num(np.abs(moved[stage] - centre)).sum(axis=0)
    return total


def many(sheet: Sheet, recipe: Recipe, copies: int) -> Stages | None:
    """Return the stages of so many copies of the problem, `[n ...]`, or None where the recipe does not fit them."""
    try:
        with np.errstate(all="ignore"):
            arrays = copied(recipe, sheet.settled, sheet.problem, copies)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    for name in "kv":
        if name in arrays and arrays[name].shape[1] != sheet.settled.heads.shared:
            arrays[name] = arrays[name][:, :: max(arrays[name].shape[1] // sheet.settled.heads.shared, 1)]
    return {name: array for name, array in arrays.items() if name in STAGES}


def held(recipe: Recipe, boxes: Sequence[Box]) -> Recipe:
    """Return the recipe that goes on from the numbers in these boxes instead of its own."""
    for box in boxes:
        if box.stage in STEPS:
            recipe = other_step(recipe, STEPS[box.stage], filling(box))
    return recipe


def filling(box: Box) -> Callable[[Step], Step]:
    return lambda step: filled(step, box)


def other_step(recipe: Recipe, name: str, change: Callable[[Step], Step]) -> Recipe:
    """Return the recipe with the step of that name changed."""
    steps: dict[str, Any] = {name: change(getattr(recipe, name))}
    return replace(recipe, **steps)


def filled(step: Step, box: Box) -> Step:
    """Return the step with a box's numbers in place of its own, where they are given."""

    def place(at: Any, side: str, heads: Array, positions: Any) -> Array:
        array: Array = step(at, side, heads, positions)
        return fill(array) if side == box.stage else array

    def fill(array: Array) -> Array:
        if array.shape[1:] != box.values.shape[1 - array.ndim :]:
            raise ValueError("the box is of another shape")
        return np.where(box.given, box.values, array)

    return place if box.stage in "qkv" else lambda *given: fill(step(*given))


def rounded(recipe: Recipe, digits: int) -> Recipe:
    """Return the recipe that writes down every stage with so many decimals and goes on from that."""

    def rounding(step: Step) -> Step:
        return lambda *given: np.round(step(*given), digits)

    for name in ("project", "place", "score", "scaled", "bent", "forbid", "after", "gather"):
        recipe = other_step(recipe, name, rounding)
    return recipe
