"""The mask has no effect."""

from __future__ import annotations

from attn_exp.experiment.mistakes._parts import other_masks
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window


def change(recipe: Recipe) -> Recipe:
    """Ignore the mask that was given."""
    return other_masks(recipe, Allowed, lambda mask: None)


def padding(recipe: Recipe) -> Recipe:
    """Ignore the mask of filler."""
    return other_masks(recipe, Padding, lambda mask: None)


def window(recipe: Recipe) -> Recipe:
    """Ignore the window."""
    return other_masks(recipe, Window, lambda mask: None)


def everything(recipe: Recipe) -> Recipe:
    """Ignore all masks."""
    return recipe.with_rules(masks=())


MISTAKE = Mistake(
    group="masks",
    says="The mask has no effect.",
    fix="put -inf where the mask forbids, before the softmax",
    seen="a mask lost on a side path; jax issue 32300",
    stage="masked",
    changes=(everything, change, padding, window),
    needs=("mask",),
)
