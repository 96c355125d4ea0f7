"""The mask is read the other way round: what may attend is hidden, and what is hidden attends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.mistakes._parts import Sees, other_masks
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.padding import Padding


def change(recipe: Recipe) -> Recipe:
    """Turn the mask that was given."""
    return other_masks(recipe, Allowed, lambda mask: Allowed(~mask.values))


def padding(recipe: Recipe) -> Recipe:
    """Turn the mask of filler."""
    return other_masks(recipe, Padding, lambda mask: Sees(lambda grid: ~np.asarray(mask.allows(grid))))


def everything(recipe: Recipe) -> Recipe:
    """Turn all that was asked for."""
    return replace(recipe, allowed=inverted(recipe.allowed)) if recipe.rules.masks else recipe


def inverted(allowed: Step) -> Step:
    return lambda at: ~allowed(at)


MISTAKE = Mistake(
    group="masks",
    says="The mask is read the other way round: what may attend is hidden, and what is hidden attends.",
    fix="True means may attend; pass ~mask where a function says the opposite",
    seen="scaled_dot_product_attention keeps True, MultiheadAttention drops it; PyTorch issue 170400",
    stage="masked",
    changes=(everything, change, padding),
    needs=("mask",),
)
