"""The mask is transposed: queries and keys have changed places in it."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.experiment.mistakes._parts import other_masks
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe, Step
from attn_exp.rules.masks.array import Allowed


def change(recipe: Recipe) -> Recipe:
    """Turn all that was asked for."""
    return replace(recipe, allowed=turned(recipe.allowed)) if recipe.rules.masks else recipe


def given_mask(recipe: Recipe) -> Recipe:
    """Turn the mask that was given."""
    return other_masks(recipe, Allowed, lambda mask: Allowed(mask.values.swapaxes(-1, -2)))


def turned(allowed: Step) -> Step:
    return lambda at: allowed(at).swapaxes(-1, -2)


MISTAKE = Mistake(
    group="masks",
    says="The mask is transposed: queries and keys have changed places in it.",
    fix="a mask is [queries, keys]",
    seen="hyunwoongko/transformer PR 40: padding put on the axis of queries",
    stage="masked",
    changes=(change, given_mask),
    needs=("mask",),
)
