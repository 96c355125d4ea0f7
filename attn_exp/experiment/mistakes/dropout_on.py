"""Dropout is on: some weights are zero and the others too large, differently at each call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array, draw
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import At, Recipe, Step


def change(recipe: Recipe) -> Recipe:
    return replace(recipe, after=dropped(recipe.after))


def dropped(after: Step) -> Step:
    def step(at: At, weights: Array, allowed: Array) -> Array:
        kept = draw(0, "dropout", "uniform", weights.shape) > 2 * SHARE - 1
        return np.asarray(after(at, weights, allowed) * kept / (1 - SHARE))

    return step


SHARE = 0.1
"""How many weights are dropped where this mistake is asked for as a setting."""


MISTAKE = Mistake(
    group="behaviour",
    says="Dropout is on: some weights are zero and the others too large, differently at each call.",
    fix="switch dropout off outside training, as model.eval() does",
    seen="PyTorch issues 99293 and 124464; nanoGPT PR 240",
    stage="weights",
    changes=(change,),
)
