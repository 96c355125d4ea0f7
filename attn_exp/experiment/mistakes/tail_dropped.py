"""The last keys are dropped where their number is no multiple of the block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes.mistake import Change, Mistake
from attn_exp.forms.pipeline import Recipe, Step


def first_keys(recipe: Recipe, count: int) -> Recipe:
    """Return the recipe in which only the first keys are seen."""
    return replace(recipe, allowed=first(recipe.allowed, lambda keys: count))


def first(allowed: Step, count: Callable[[int], int]) -> Step:
    return lambda at: allowed(at) & (np.arange(at.keys) < count(at.keys))


def change(block: int) -> Change:
    """Return the change that drops the keys past the last whole block."""
    return lambda recipe: replace(recipe, allowed=first(recipe.allowed, lambda keys: keys // block * block))


def last(recipe: Recipe) -> Recipe:
    """The last key alone is dropped, as a loop that ends one early does."""
    return replace(recipe, allowed=first(recipe.allowed, lambda keys: keys - 1))


MISTAKE = Mistake(
    group="behaviour",
    says="The last keys are dropped where their number is no multiple of the block.",
    fix="handle the last, shorter block, and mask what lies beyond the keys",
    seen="triton issue 2626; jax issue 27224; lightning-attention PR 28",
    stage="weights",
    changes=(
        *(change(block) for block in (2, 3, 4, 5, 8, 16, 32, 64, 128)),
        last,
    ),
)
