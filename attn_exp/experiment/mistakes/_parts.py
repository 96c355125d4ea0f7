"""What several mistakes are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.pipeline import At, Recipe, Step
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import AllOf, AnyOf, Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.score import Score


@dataclass(frozen=True)
class Sees(Mask):
    """A mask that is any function of the grid."""

    seen: Callable[[Grid], Any]

    def allows(self, grid: Grid) -> Array | bool:
        return np.asarray(self.seen(grid))


@dataclass(frozen=True)
class Adds(Score):
    """A score rule that adds any function of the grid."""

    added: Callable[[Grid], Any]

    def bias(self, grid: Grid) -> Array:
        return np.asarray(self.added(grid))


def masks_with(masks: tuple[Mask, ...], kind: type[Mask], change: Callable[[Any], Mask | None]) -> tuple[Mask, ...]:
    """Return the masks with those of one kind changed, also inside masks that are joined; None leaves one out."""
    changed: list[Mask | None] = []
    for mask in masks:
        if isinstance(mask, AllOf | AnyOf):
            changed.append(type(mask)(masks_with(mask.masks, kind, change)))
        else:
            changed.append(change(mask) if isinstance(mask, kind) else mask)
    return tuple(mask for mask in changed if mask is not None)


def other_masks(recipe: Recipe, kind: type[Mask], change: Callable[[Any], Mask | None]) -> Recipe:
    """Return the recipe with the masks of one kind changed, or left out."""
    return recipe.with_rules(masks=masks_with(recipe.rules.masks, kind, change))


def other_causal(recipe: Recipe, seen: Callable[[Grid], Any] | None) -> Recipe:
    """Return the recipe with another mask for the causal one, or with none."""
    return other_masks(recipe, Causal, lambda mask: None if seen is None else Sees(seen))


def other_lengths(recipe: Recipe, longer: int) -> Recipe:
    """Return the recipe with padding masks that end so many keys later."""

    def change(mask: Padding) -> Mask:
        return Padding(tuple(max(int(length) + longer, 0) for length in np.ravel(mask.lengths)))

    return other_masks(recipe, Padding, change)


def other_window(recipe: Recipe, left: int, right: int) -> Recipe:
    """Return the recipe with a window that is so many keys wider on each closed side."""

    def change(mask: Window) -> Mask:
        sides = [side if side < 0 else side + wider for side, wider in ((mask.left, left), (mask.right, right))]
        before, behind = sides
        if before == -1 and mask.left == 0:
            return Sees(lambda grid: (grid.key > grid.query) & (grid.key <= grid.query + max(behind, 0)))
        if behind == -1 and mask.right == 0:
            return Sees(lambda grid: (grid.key < grid.query) & (grid.key >= grid.query - before))
        return Window(before, behind)

    return other_masks(recipe, Window, change)


def moved(allowed: Step, offset: Callable[[At], int]) -> Step:
    """Return the step that asks the masks as if the first query stood `offset` keys later."""
    return lambda at: allowed(replace(at, rules=replace(at.rules, offset=offset(at))))


def other_pairs(recipe: Recipe) -> Recipe:
    """Return the recipe with positions that pair their numbers the other way."""
    others = ((position.other_pairs(), position) for position in recipe.positions)
    return replace(recipe, positions=tuple(position if other is None else other for other, position in others))


def other_alibi(recipe: Recipe, added: Callable[[Grid], Any]) -> Recipe:
    """Return the recipe with another bias for ALiBi's."""
    scores = tuple(Adds(added) if isinstance(rule, Alibi) else rule for rule in recipe.rules.scores)
    return recipe.with_rules(scores=scores)


def over(*axes: int) -> Step:
    """Return the step that normalizes over other axes of `[b h t s]`."""

    def step(at: At, masked: Array) -> Array:
        axis = tuple(axis for axis in axes if axis or not at.apart)
        powers = np.exp(masked - masked.max(axis=axis, keepdims=True, initial=-1e300))
        total = powers.sum(axis=axis, keepdims=True)
        return np.asarray(powers / np.where(total == 0, 1.0, total))

    return step


def as_it_lies(at: At, context: Array) -> Array:
    """Put heads together with a view alone: `[b h t d]` is read as `[b t h*d]`."""
    batch, heads, rows, size = context.shape
    return context.reshape(batch, rows, heads * size)
