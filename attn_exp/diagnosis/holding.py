"""Recipes that go on from numbers a person wrote, that end early, or that round on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.boxes import Box
from attn_exp.forms.pipeline import Recipe, Step

STEPS = {
    "q": "place", "k": "place", "v": "place", "scores": "score", "logits": "scaled", "capped": "bent",
    "masked": "forbid", "weights": "after", "context": "gather",
}  # fmt: skip
"""The last step of each stage."""


class EnoughError(Exception):
    """Carries the stage that was asked for out of a computation, which ends there."""

    def __init__(self, array: Array) -> None:
        super().__init__()
        self.array = array


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
