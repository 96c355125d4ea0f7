"""ALiBi has the wrong sign: far keys are favoured."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.mistakes._parts import other_alibi
from attn_exp.experiment.mistakes.mistake import Mistake
from attn_exp.forms.pipeline import Recipe
from attn_exp.rules.grid import Grid
from attn_exp.rules.scores.alibi import slopes


def change(recipe: Recipe) -> Recipe:
    return other_alibi(recipe, lambda grid: rates(grid) * abs(grid.query - grid.key))


def signed(recipe: Recipe) -> Recipe:
    return other_alibi(recipe, lambda grid: rates(grid) * (grid.key - grid.query))


def signed_back(recipe: Recipe) -> Recipe:
    return other_alibi(recipe, lambda grid: rates(grid) * (grid.query - grid.key))


def rates(grid: Grid) -> Array:
    return np.asarray(np.array(slopes(grid.heads))[grid.head])


MISTAKE = Mistake(
    group="scores",
    says="ALiBi has the wrong sign: far keys are favoured.",
    fix="subtract slope * distance",
    seen="distance taken as j - i where i - j is meant",
    stage="masked",
    changes=(
        change,
        signed_back,
        signed,
    ),
    needs=("alibi",),
)
