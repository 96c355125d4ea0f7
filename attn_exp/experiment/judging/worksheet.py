"""A worksheet: a run's problem, the boxes that a person filled in, and whether a way to compute gives their numbers.

A box agrees where its numbers are those of the exact computation, rounded; or those that follow from the rounded
numbers in the boxes before it; or lie between, as far as the rounding of those boxes moves the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
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
LAST = {**STEPS, "q": "share", "k": "share", "v": "share"}
"""The step after which no other changes a stage."""
MOST_CELLS = 400
"""Of more numbers than this the rounding is not carried through one by one."""


@dataclass(frozen=True, eq=False)
class Sheet:
    """A variant on its problem, and the boxes that are filled in, in the order of the stages."""

    settled: Settled
    problem: Problem
    boxes: tuple[Box, ...]
    known: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False, repr=False)
    """What follows from these boxes, kept for other recipes of the same steps."""

    @property
    def right(self) -> Recipe:
        """The steps of the right computation."""
        return right(self.settled)


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
    return gives(sheet, recipe, stages(sheet, recipe))


def gives(sheet: Sheet, recipe: Recipe, exact: Stages | None) -> bool:
    """Say whether a recipe, whose stages are known, gives the numbers of every box."""
    if exact is None or sheet.boxes[0].misses(part(exact, sheet.boxes[0])).any():
        return False
    return not any(wrong(sheet, recipe, place, exact).any() for place in range(len(sheet.boxes)))


def wrong(sheet: Sheet, recipe: Recipe, place: int, exact: Stages | None) -> Array:
    """Return the cells of a box that the recipe does not give, neither exactly nor from the boxes before."""
    box = sheet.boxes[place]
    missed = box.misses(part(exact, box))
    return missed & unfollowed(sheet, recipe, place) if missed.any() and place else missed


def unfollowed(sheet: Sheet, recipe: Recipe, place: int) -> Array:
    """Return the cells of a box that do not follow from the boxes before it.

    Recipes that differ only in later steps share the answer.
    """
    names = (one.name for one in fields(recipe))
    last = LAST.get(sheet.boxes[place].stage, "finish")
    upto = itertools.takewhile(lambda name: name != last, names)
    key = (place, id(getattr(recipe, last)), *(id(getattr(recipe, name)) for name in upto))
    if key not in sheet.known:
        sheet.known[key] = recipe, follows_not(sheet, recipe, place)  # the recipe stays, and so do its ids
    missed: Array = sheet.known[key][1]
    return missed


def follows_not(sheet: Sheet, recipe: Recipe, place: int) -> Array:
    """Compute the cells of a box that do not follow from the boxes before it."""
    box, earlier = sheet.boxes[place], sheet.boxes[:place]
    alone = one_stage(sheet, held(recipe, earlier), box.stage, 1)
    centre = None if alone is None else alone[0]
    missed = box.misses(centre)
    if not missed.any() or centre is None:
        return missed
    return missed & box.misses(centre, reach(sheet, recipe, earlier, box.stage, centre))


def reach(sheet: Sheet, recipe: Recipe, earlier: Sequence[Box], stage: str, centre: Array) -> Array:
    """Return how far a stage moves while the numbers before it move within their rounding, to first order."""
    total = np.zeros_like(centre)
    if not 0 < sum(int(box.given.sum()) for box in earlier) <= MOST_CELLS:
        return total
    moving = nudged(sheet, earlier)
    count = len(moving[0].values)
    moved = one_stage(sheet, held(recipe, moving), stage, count)
    if moved is None or not np.array_equal(moved[-1], centre, equal_nan=True):
        return total  # one copy has moved another: nothing is known
    with np.errstate(invalid="ignore", over="ignore"):
        apart: Array = np.nan_to_num(np.abs(moved - centre)).sum(axis=0)
    return apart


def nudged(sheet: Sheet, boxes: Sequence[Box]) -> list[Box]:
    """Return copies of boxes `[n ...]`, in each of which one cell is moved by its rounding; in the last one none is."""
    key = ("nudged", len(boxes))
    if key not in sheet.known:
        cells = [np.argwhere(box.given & np.isfinite(box.values)) for box in boxes]
        count, start, moving = sum(map(len, cells)), 0, []
        for box, places in zip(boxes, cells, strict=True):
            values = np.repeat(box.values[None], count + 1, axis=0)
            values[(np.arange(start, start + len(places)), *places.T)] += box.halves[tuple(places.T)]
            moving.append(replace(box, values=values))
            start += len(places)
        sheet.known[key] = moving
    kept: list[Box] = sheet.known[key]
    return kept


class EnoughError(Exception):
    """Carries the stage that was asked for out of a computation, which ends there."""

    def __init__(self, array: Array) -> None:
        super().__init__()
        self.array = array


def one_stage(sheet: Sheet, recipe: Recipe, stage: str, copies: int) -> Array | None:
    """Return a stage of so many copies of the problem, `[n ...]`, computed no further; None where it does not fit."""
    early = stage in STEPS and stage not in "qkv"
    try:
        with np.errstate(all="ignore"):
            ending = other_step(recipe, STEPS[stage], ended) if early else recipe
            array = copied(ending, sheet.settled, sheet.problem, copies).get(stage)
    except EnoughError as enough:
        array = enough.array
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    shared = sheet.settled.heads.shared
    if stage in ("k", "v") and array is not None and array.shape[1] != shared:
        return array[:, :: max(array.shape[1] // shared, 1)]
    return array


def ended(step: Step) -> Step:
    """Return the step after which nothing else is computed."""

    def end(*given: Any) -> Any:
        raise EnoughError(step(*given))

    return end


def held(recipe: Recipe, boxes: Sequence[Box]) -> Recipe:
    """Return the recipe that goes on from the numbers in these boxes instead of its own."""
    steps: dict[str, Any] = {}
    for box in boxes:
        if box.stage in STEPS:
            name = STEPS[box.stage]
            steps[name] = filled(steps.get(name, getattr(recipe, name)), box)
    return replace(recipe, **steps)


def other_step(recipe: Recipe, name: str, change: Callable[[Step], Step]) -> Recipe:
    """Return the recipe with the step of that name changed."""
    steps: dict[str, Any] = {name: change(getattr(recipe, name))}
    return replace(recipe, **steps)


def filled(step: Step, box: Box) -> Step:
    """Return the step with a box's numbers in place of its own, where they are given."""

    whole = bool(box.given.all())

    def place(at: Any, side: str, heads: Array, positions: Any) -> Array:
        array: Array = step(at, side, heads, positions)
        return fill(array) if side == box.stage else array

    def instead(at: Any, *given: Any) -> Array:
        if not whole:
            return fill(step(at, *given))
        return np.array(np.broadcast_to(box.values, (at.batch, *box.values.shape[-3:])))

    def fill(array: Array) -> Array:
        if array.shape[1:] != box.values.shape[1 - array.ndim :]:
            raise ValueError("the box is of another shape")
        return np.where(box.given, box.values, array)

    return place if box.stage in "qkv" else instead


def rounded(recipe: Recipe, digits: int) -> Recipe:
    """Return the recipe that writes down every stage with so many decimals and goes on from that."""

    def rounding(step: Step) -> Step:
        return lambda *given: np.round(step(*given), digits)

    for name in ("project", "place", "score", "scaled", "bent", "forbid", "after", "gather"):
        recipe = other_step(recipe, name, rounding)
    return recipe
