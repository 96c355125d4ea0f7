"""The number of heads is ignored: one head does all the work."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import At, Recipe, Step


def change(recipe: Recipe) -> Recipe:
    """One head of full width, scaled by its own size."""
    return replace(same_scale(recipe), scaled=wider(recipe.scaled, recipe.heads))


def same_scale(recipe: Recipe) -> Recipe:
    """One head of full width, scaled by the size of the heads that it should have had."""
    return replace(recipe, heads=1, groups=1, score=together(recipe.score))


def wider(scaled: Step, heads: int) -> Step:
    return lambda at, scores: scaled(at, scores) / math.sqrt(heads)


def together(score: Step) -> Step:
    """Add up the scores of all heads, where these were given apart."""

    def step(at: At, q: Array, k: Array) -> Array:
        scores = score(at, q, k)
        return np.asarray(np.broadcast_to(scores.sum(axis=1, keepdims=True), scores.shape))

    return step


MISTAKE = Mistake(
    group="heads",
    says="The number of heads is ignored: one head does all the work.",
    fix="cut q, k and v into heads before the scores",
    seen="num_heads stored and never used",
    stage="q",
    changes=(change, same_scale),
)
